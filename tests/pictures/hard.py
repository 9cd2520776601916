"""Texts that Mermaid, of one version or another, reads as something else than a label."""

HARD = (
    "a#35;b; c", "#", "; ;", 'say "hi" {x} 50%% done', '%%{init: {"theme": "dark"}}%%', "%% no comment", "%%%",
    "<b>x</b> `code`", "<script>alert(1)</script>", "<br/>", "a --> b", "A->>B: x", "C:\\tmp \\n x", "end", "End",
    "10:30:15", "std::move", "a:::b", "note:", "::", "$$x$$", "wrap: x", "nowrap:x", "🙂 思考", "&lt; &amp; #lt;",
    "*x* **b** _y_ __z__", "1. item", "- item", "+ item", "# head", "> quote", "[a < b and c > d]", "a|b", "{", "}",
    "()", "~~~", "<<fork>>", "[*]", "state", "direction LR", "Direction  tb x", "--", "https://x.y", "&", "<", "@{x}",
    "fa:fa-x", "line1\nline2", "a\r\nb", "a\tb", "1. a\n2. b", "[t](u)", "<!-- c -->", "=", "maintenance_latched",
    "issue #12", "50%", "activate", "title x", "loop", "ﬂ ligature",
)  # fmt: skip

NAMES = (
    "end", "End", "state", "note", "class", "classDef", "direction", "style", "default", "[*]", "<<fork>>", "as",
    "hide empty description", "scale", "participant", "actor", "loop", "par", "activate", "title", "思考", "完了",
    "a-b", "a b", "a_b", "A", "a", "_5b", "[", 'say "hi"', '{"a": [1]}', "<b>x</b>", "over", "box", "1x", "left of",
)  # fmt: skip
"""Names of which several have been taken for words of Mermaid's, or reduced to one id."""
