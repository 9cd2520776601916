// Draws Mermaid texts with Mermaid itself, in a document without a browser, and hands back the text of each picture.
// Reads a JSON array of texts from standard input; writes one of {texts} or {error}. Run it in a folder that holds
// node_modules with mermaid and jsdom.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.cwd() + '/');
const { JSDOM } = await import(pathToFileURL(require.resolve('jsdom')));
const { window } = new JSDOM('<!doctype html><body></body>', { pretendToBeVisual: true });
Object.assign(globalThis, { window, document: window.document });
for (const name of ['Element', 'SVGElement', 'HTMLElement', 'Node', 'DOMParser', 'CSSStyleSheet', 'getComputedStyle', 'XMLSerializer', 'MutationObserver']) {
  if (window[name]) globalThis[name] = window[name];
}
// Nothing is laid out here, so sizes are made up; only the text matters.
const size = (node) => ({ x: 0, y: 0, width: (node.textContent || '').length * 8, height: 16 });
window.SVGElement.prototype.getBBox = function () { return size(this); };
window.SVGElement.prototype.getComputedTextLength = function () { return size(this).width; };

const { default: mermaid } = await import(process.cwd() + '/node_modules/mermaid/dist/mermaid.core.mjs');
mermaid.initialize({ startOnLoad: false });
const drawn = [];
for (const [number, text] of JSON.parse(readFileSync(0, 'utf8')).entries()) {
  try {
    const { svg } = await mermaid.render('picture' + number, text);
    const { document } = new JSDOM(svg, { contentType: 'text/html' }).window;
    drawn.push({ texts: [...document.querySelectorAll('text, foreignObject')].map((node) => node.textContent) });
  } catch (error) {
    drawn.push({ error: String(error) });
  }
}
process.stdout.write(JSON.stringify(drawn));
process.exit(0);
