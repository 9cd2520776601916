"""A page for each policy: what it is for, how it is used, where it listens, its options, and the picture of a session.

The picture is what `lifecycle replay --sequence` draws of the demo session; options and points are read off the code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lifecycle.pictures.markdown import cell, code, fenced, text
from lifecycle.policies.compaction import CompactionOptions, compacting
from lifecycle.policies.context import Source, runtime_context
from lifecycle.policies.plan import PlanMode
from lifecycle.policies.retry import Backoff, RetryOptions, retrying
from lifecycle.policies.selection import ModelSwitch
from lifecycle.services.hooks import Hooks
from lifecycle.vocabulary.requests import ModelSelection

from .history import history
from .policy_demos import demo_log
from .run_picture import run_picture


class Told(NamedTuple):
    """What a page says in one language."""

    title: str
    intro: str
    more: str
    picture: str
    """What the demo session shows."""


class Policy(NamedTuple):
    """A page: the name of the policy and its demo, what it says, and from what the rest of it is made."""

    name: str
    en: Told
    zh: Told
    usage: str
    hooks: Callable[[], Hooks]
    options: tuple[type[Any], ...]

    @property
    def file(self) -> str:
        """Its file without the endings."""
        return f"policy-{self.name}"

    def told(self, lang: str) -> Told:
        return self.en if lang == "en" else self.zh


HEADINGS = {
    "en": ("In use", "Where it listens", "Options", "A session", "Name", "By default", "What it says"),
    "zh": ("用法", "监听的位置", "选项", "一次会话", "名称", "默认值", "说明"),
}
INDEX = {"en": "Policies", "zh": "策略"}
ABOUT = {
    "en": "Sets of ordinary hooks around the loop. They use what every hook may use, and add up: `retrying()"
    " + my_hooks`. `lifecycle hooks explain MODULE:HOOKS` tells who then runs where.",
    "zh": "围绕循环的普通 hook 集合。它们只使用任何 hook 都可以使用的东西，并且可以相加：`"
    "retrying() + my_hooks`。`lifecycle hooks explai"
    "n MODULE:HOOKS` 会说明谁在哪里运行。",
}
AGAIN = {
    "en": "Play it yourself: `lifecycle replay demo:{name}` tells it as a timeline, and draws this with `--sequence`.",
    "zh": "自己播放：`lifecycle replay demo:{name}` 以时间线讲述它，加上 `--sequence` 则画出上图。",
}

POLICIES = (
    Policy(
        "retry",
        Told(
            "Retry",
            "A request that failed in passing is made again, in the open step, after a wait: what the provider"
            " asked for, to the letter, or exponential back-off with full jitter by the class of the failure.",
            "`llm/retry` is recorded before the wait and `llm/retry-started` after it; a cancel in between"
            " starts nothing. Where the failed attempt had streamed text, `llm/retry` says `shown`: whoever"
            " shows it begins again. A wait beyond `most_provider_seconds` is neither waited nor undercut: the"
            " turn fails and says what was asked for. What is spent is read off the log, and counts per step"
            " and turn.",
            "A connection that is cut after some text, a provider that asks for 7 seconds, and the answer.",
        ),
        Told(
            "重试",
            "暂时失败的请求在打开的步骤内、等待之后重新发出：逐字遵守提供方要求的等待，否则按失败类别做带完全抖动的指数退避。",
            "等待前记录 `llm/retry`，等待后记录 `llm/retry-started`；其间"
            "取消则什么也不会开始。如果失败的尝试已经流出文本，`llm/retry` 带有 `shown"
            "`：显示它的一方应重新开始。超过 `most_provider_seconds` 的等待既不"
            "等也不提前：轮次失败，并说明提供方要求了什么。已用的预算从日志读出，按步骤和轮次计算。",
            "一次在输出部分文本后中断的连接，一个要求等待 7 秒的提供方，然后是回答。",
        ),
        """from lifecycle.policies.retry import Backoff, RetryOptions, TRANSIENT, retrying

agent = Agent(model, hooks=retrying())
patient = RetryOptions(classes={**TRANSIENT, "QUOTA": Backoff(retries=1, base_seconds=30)}, per_turn=50)
agent = Agent(model, hooks=retrying(patient))""",
        retrying,
        (RetryOptions, Backoff),
    ),
    Policy(
        "compaction",
        Told(
            "Compaction",
            "When a conversation outgrows the context window, its older part gives way to a summary. What takes"
            " the place of something cites it, so the log keeps everything.",
            "Pressure is measured at `agent/pre-step` from the usage that was reported and an estimate of the"
            " rest; a failure there is a warning, and the step goes on. At `agent/request-error` only a context"
            " overflow is taken up, and the request is made again only if something has given way. Old tool"
            " results are pruned first. A call is never split from its result. `await compact(agent, options)`"
            " and `lifecycle sessions compact ID --model NAME` do it by hand, as a maintenance task.",
            "Pressure that pruning relieves, and an overflow that needs a summary too.",
        ),
        Told(
            "压缩",
            "当会话超出上下文窗口时，较旧的部分让位给一段摘要。替换者会引用被替换的内容，因此日志保留一切。",
            "`agent/pre-step` 处的压力由已报告的用量和对其余部分的估计得出；此处失败只是"
            "警告，步骤继续。`agent/request-error` 处只处理上下文溢出，并且只有在确"
            "有内容让位时才重新请求。先剪枝旧的工具结果。调用与其结果从不分开。`await compac"
            "t(agent, options)` 和 `lifecycle sessions compa"
            "ct ID --model NAME` 以维护任务的方式手动压缩。",
            "由剪枝缓解的压力，以及还需要摘要的溢出。",
        ),
        """from lifecycle.policies.compaction import CompactionOptions, compact, compacting

agent = Agent(model, hooks=compacting())
options = CompactionOptions(model=small_model)  # who writes the summaries; else the agent's own model
agent = Agent(model, hooks=compacting(options))
await compact(agent, options)  # by hand, while the agent is idle""",
        compacting,
        (CompactionOptions,),
    ),
    Policy(
        "runtime-context",
        Told(
            "Runtime context",
            "What the model should know of the world right now, told behind a step's input and only where it"
            " has changed.",
            "The lifecycle writes the snapshot, and opens no step for it. A source is asked as seldom as it"
            " says; one that raises is logged, and what it said before holds.",
            "Three turns, in the last of which the day is another one.",
        ),
        Told(
            "运行时上下文",
            "模型此刻应当知道的外部情况：放在步骤输入之后，并且只在变化时告知。",
            "快照由生命周期写入，不会为它打开步骤。来源只按其声明的频率被询问；抛出异常的来源会被记录，之前所说的继续有效。",
            "三个轮次，最后一个轮次里日期变了。",
        ),
        """from lifecycle.policies.context import Source, runtime_context

hooks = runtime_context(
    Source("day", lambda agent: f"Today is {date.today()}."),
    Source("branch", current_branch, every_seconds=30),
)
agent = Agent(model, hooks=hooks)""",
        lambda: runtime_context(Source("day", str)),
        (Source,),
    ),
    Policy(
        "model-switch",
        Told(
            "Model selection",
            "A host chooses another route at any time; it holds from the next step boundary on, for all"
            " attempts of a step.",
            "The model is told of a switch once, in the first step that is admitted after it. A route that"
            " nobody offers is refused where it is selected.",
            "Another model is chosen between two turns.",
        ),
        Told(
            "模型选择",
            "宿主可以随时选择另一条路由；它从下一个步骤边界起生效，并适用于该步骤的所有尝试。",
            "切换只告诉模型一次，在其后第一个被接纳的步骤中。无人提供的路由在选择时即被拒绝。",
            "在两个轮次之间选择了另一个模型。",
        ),
        """from lifecycle.policies.selection import ModelSwitch

switch = ModelSwitch({"fast": ModelSelection(model="small"), "deep": ModelSelection(model="large", effort="high")})
agent = Agent(model, hooks=switch.hooks)
switch.select("deep")""",
        lambda: ModelSwitch({"deep": ModelSelection(effort="high")}).hooks,
        (),
    ),
    Policy(
        "plan-mode",
        Told(
            "Plan mode",
            "The model may look and think, and acts only once somebody has approved of its plan.",
            'Tools that do not declare an allowed kind (`@tool(kind="read")`) are taken out of the step. The'
            " model leaves by `exit_plan_mode`, whose call is put before the agent's approver; a host may enter"
            " and leave at any time. A switch holds from the next step boundary on and is told once.",
            "A plan is made, approved, and carried out.",
        ),
        Told(
            "计划模式",
            "模型可以查看和思考，只有在有人批准其计划之后才行动。",
            '没有声明允许类别（`@tool(kind="read")`）的工具会从步骤中移除。模型通过 '
            "`exit_plan_mode` 离开，该调用会交给代理的批准者；宿主可以随时进入和离开。切"
            "换从下一个步骤边界起生效，并且只告知一次。",
            "制定计划、获得批准并执行。",
        ),
        """from lifecycle.policies.plan import PlanMode

plan = PlanMode()
options = AgentOptions(approve=ask_the_user)
agent = Agent(model, tools=[*tools, plan.tool], hooks=plan.hooks, options=options)
plan.enter()""",
        lambda: PlanMode().hooks,
        (),
    ),
)


def page(policy: Policy, lang: str, mark: str, beside: str) -> str:
    """The page as Markdown. `mark` is its first line, `beside` the links to its other language."""
    return "\n".join(_page(policy, lang, mark, beside))


def _page(policy: Policy, lang: str, mark: str, beside: str) -> Iterator[str]:
    told, (usage, where, options, session, *columns) = policy.told(lang), HEADINGS[lang]
    yield f"{mark}\n\n# {text(told.title)}\n\n{beside}\n"
    yield f"{text(told.intro)}\n\n{text(told.more)}\n"
    yield f"## {text(usage)}\n\n{fenced('python', policy.usage)}"
    yield f"## {text(where)}\n"
    hooks = policy.hooks()
    yield (
        "\n".join(f"* `{name}` ({point.mode.value})" for name, point in hooks.points.items() if hooks.listeners(name))
        + "\n"
    )
    if policy.options:
        yield f"## {text(options)}\n"
    for one in policy.options:
        yield f"`{one.__name__}`\n"
        yield "\n".join(_rows(one, columns if lang == "en" else columns[:2])) + "\n"
    yield f"## {text(session)}\n\n{text(told.picture)}\n"
    yield fenced("mermaid", run_picture(history(demo_log(policy.name))))
    yield f"{AGAIN[lang].format(name=policy.name)}\n"


def _rows(options: type[Any], columns: list[str]) -> Iterator[str]:
    said = _arguments(options)
    yield f"| {' | '.join(map(cell, columns))} |"
    yield f"|{' --- |' * len(columns)}"
    for field in dataclasses.fields(options):
        cells = [code(field.name), code(_default(field)), cell(said.get(field.name, ""))]
        yield f"| {' | '.join(cells[: len(columns)])} |"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        given: Any = field.default
        if isinstance(given, str) and len(given) > 40:
            return "..."
        return getattr(given, "__name__", repr(given))
    return "" if field.default_factory is dataclasses.MISSING else "TRANSIENT"


def _arguments(options: type[Any]) -> dict[str, str]:
    """What the docstring says of each argument."""
    part = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(options) or "", re.DOTALL)
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", part[1] if part else "", re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in found}
