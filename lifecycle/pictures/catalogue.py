"""The words of the pages in Chinese, one counterpart for each text, and a reader that notices what is missing.

A key is a text as the definition, a picture or a page writes it. Code between backticks and names in braces stand in
both. The terms: 轮次 turn, 步骤 step, 阶段 phase, 认领 claim, 唤醒 wake, 监听器 listener, 提示词 prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle

STAYS = frozenset((
    "Agent", "ctx.systemPrompt", "ctx.llm", "ctx.tools", "followup(content)", "inject(content)", "send(content)",
    "approve(call, reason)",
    "inbox.replace(id, message)", "cancel(cause)", "run_maintenance(task)",
    "prepareCall(config, signal)", "resolve({ agent, signal })", "StreamChunk*", "chunk*", "{ message }", "{ cause }",
    "{ turn, step, seconds, calls }",
    "{ turn, step, error }", "{ call, result }", "running", "idle", "start", "end", "0..1", "0..n", "once",
))  # fmt: skip
"""What is code or a sign, and reads the same in every language."""

_CODE = re.compile(r"`[^`]+`\*?( (emit|serial|parallel|waterfall))?|(emit|serial|parallel|waterfall)?")
"""Texts of which the same is seen without a list."""

CHINESE: Mapping[str, str] = MappingProxyType(
    {
        # -- who speaks ----------------------------------------------------------------------------------------------
        "User": "用户",
        "Driver": "驱动器",
        "hook listeners": "钩子监听器",
        "Session": "会话",
        "Persistence": "持久化",
        "UI or SDK listener": "UI 或 SDK 监听器",
        # -- the agent -----------------------------------------------------------------------------------------------
        "queued work wakes driver": "排队的工作唤醒驱动器",
        "pure deletion": "纯删除",
        "{ message, turn } per message": "{ message, turn }，每条消息一次",
        "nothing is left to do": "没有剩余的工作",
        "input comes at the end of disposal": "销毁收尾时有输入到来",
        "context is injected, which wakes nobody": "注入上下文，不唤醒任何一方",
        "pending input is edited": "待处理的输入被编辑",
        "an idle agent is cancelled": "取消空闲的 agent",
        "next-step, canceled": "next-step，已取消",
        "next-turn, canceled": "next-turn，已取消",
        "the agent is disposed": "agent 被销毁",
        "input comes to an idle agent": "空闲的 agent 收到输入",
        "a maintenance task starts": "维护任务开始",
        "the maintenance task runs, with a signal of its own": "维护任务运行，持有自己的信号",
        "the maintenance task is cancelled": "维护任务被取消",
        "the signal fires": "信号触发",
        "the maintenance task has ended": "维护任务已结束",
        "the maintenance task runs, and input waits for its end": "维护任务运行，输入等待其结束",
        "more input comes during maintenance": "维护期间又有输入到来",
        "cancelled, keeping the inbox": "取消，但保留收件箱",
        "input came during maintenance": "维护期间曾有输入到来",
        "the held input is gone": "被留住的输入已不在",
        "the turns from a wake to the next rest": "从一次唤醒到下一次歇息之间的各个轮次",
        "input comes while a turn runs": "轮次运行时有输入到来",
        "input comes after the cancel": "取消之后有输入到来",
        "a turn of its own, also for a steer": "自成一个轮次，steer 也是如此",
        "input comes during disposal": "销毁期间有输入到来",
        "cancelled once more": "再次取消",
        "more input comes after the cancel": "取消之后又有输入到来",
        "the latched wake is withdrawn": "撤回已锁存的唤醒",
        "no turn is open": "没有打开的轮次",
        "the cancelled turn has settled": "被取消的轮次已经结清",
        "the latched input is gone": "已锁存的输入不在了",
        "a wake was latched meanwhile": "其间锁存了一次唤醒",
        "more input is pending": "还有输入待处理",
        "input comes during maintenance": "维护期间有输入到来",
        "the held wake is withdrawn": "撤回被留住的唤醒",
        # -- the turn ------------------------------------------------------------------------------------------------
        "claim pending next-step input plus one queued prompt": "认领待处理的 next-step 输入，外加一条排队的提示词",
        "the steps of the turn": "该轮次的各个步骤",
        "natural stop and next-step inbox empty": "自然停止，且 next-step 收件箱为空",
        "terminal checkpoint": "终止检查点",
        "next-step input is pending": "有待处理的 next-step 输入",
        "claim pending next-step input": "认领待处理的 next-step 输入",
        "look for next-step input": "查看有无 next-step 输入",
        "tool results owe another request": "工具结果还欠一次请求",
        "the step failed": "步骤失败",
        "the turn is cancelled": "轮次被取消",
        "cancelled at the boundary": "在边界处取消",
        "the boundary was refused": "边界被拒绝",
        "something raised": "有异常抛出",
        # -- the step ------------------------------------------------------------------------------------------------
        "commits selections pending for this step": "提交为该步骤待定的选择",
        "chooses provider, model, and effort, published as agent.step": (
            "选择 provider、model 与 effort，发布为 agent.step"
        ),
        "reads agent.step": "读取 agent.step",
        "authoritative reject or enter(messages)": "以返回的 reject 或 enter(messages) 为准",
        "proposed step rejected, first batch empty, or pre-step failed": "提议的步骤被拒绝、首批为空，或 pre-step 失败",
        "claimed batch stays removed, the open turn spends no step": "已认领的批次不再放回，打开的轮次不消耗步骤",
        "enter proposed step": "进入提议的步骤",
        "once per step": "每个步骤一次",
        "contexts, variables, sections, and the step tool set": "上下文、变量、段落与该步骤的工具集",
        "with the step model selection": "使用该步骤的模型选择",
        "cancellation during preparation commits neither system nor users": "准备期间取消，系统消息与用户消息均不提交",
        "synchronous admission using the prepared call capability": "依据预备调用的能力，同步准入",
        "ordered per-node reconciliation": "逐节点按序对齐",
        "per entered message, then a changed runtime-context snapshot": (
            "每条进入的消息一次，然后是有变化的运行时上下文快照"
        ),
        "of a changed runtime-context snapshot": "有变化的运行时上下文快照",
        "`request/header` and `request/context`": "`request/header` 与 `request/context`",
        "as needed": "按需",
        "derive and freeze request from the log": "从日志派生请求并冻结",
        "bound prepared call through `llm/stream` waterfall": "绑定的预备调用经过 `llm/stream` waterfall",
        "the attempts of the request": "该请求的各次尝试",
        "final adapter or terminal in-band request failure": "适配器最终失败，或流内出现终结性请求失败",
        "committed end": "end，已提交",
        "return retry action or preserve the original error": "返回重试动作，或保留原始错误",
        "a hook returns a retry action": "钩子返回重试动作",
        "retry in the open step: request and prepare again with the same model selection, tool set, and prompt"
        " without repeating pre-step or users": (
            "在打开的步骤内重试：以相同的模型选择、工具集与提示词再次请求并准备，不重复 pre-step 与用户消息"
        ),
        "the original error stands": "以原始错误为准",
        "model request succeeded": "模型请求成功",
        "classify pending call by executionMode": "按 executionMode 对待执行的调用分类",
        "barriers and bounded rolling pool, reclassify before start": "屏障与有界滚动池，启动前重新分类",
        "call starts": "调用启动",
        "ordered pre, concurrent execute": "pre 按序，execute 并发",
        "with the step tool set": "使用该步骤的工具集",
        "tool-owned events when applicable": "工具自有的事件（如有）",
        "next model-order result ready": "按模型顺序的下一个结果就绪",
        "ordered post": "post 按序",
        "every call has settled": "所有调用均已结清",
        "dispose the step tool set": "释放该步骤的工具集",
        "cancelled before the step was entered": "在进入步骤之前取消",
        "cancelled in the open step": "在打开的步骤内取消",
        "cancelled while requesting": "在请求期间取消",
        "cancelled while tools ran": "在工具运行期间取消",
        "of the visible prefix, interrupted": "可见前缀，标为 interrupted",
        "where nothing is visible": "没有可见内容时",
        "if it was dispatched": "如果已经发出",
        "let started calls end": "让已启动的调用结束",
        "and commit them in model order": "并按模型顺序提交",
        "and commit nothing": "且不提交任何结果",
        "of each call that never started": "每个从未启动的调用一次",
        "aborted before dispatch": "在派发之前中止",
        "a hook of the proposal raised": "提议阶段的钩子抛出异常",
        "something raised in the open step": "打开的步骤内有异常抛出",
        "preparing or consuming the stream raised": "准备或读取流时抛出异常",
        "the scheduler failed": "调度器失败",
        # -- the tool call -------------------------------------------------------------------------------------------
        "allow, deny or ask": "allow、deny 或 ask",
        "the call is allowed": "调用获准",
        "a hook asks for an approval": "钩子要求审批",
        "of the host": "由宿主回答",
        "yes or no": "是或否",
        "a turn whose process is lost here stays parked, and is asked about again": (
            "若进程在此处丢失，轮次保持停放，恢复后再次询问"
        ),
        "approved": "获批",
        "not approved": "未获批",
        "denied": "被拒绝",
        "canceled": "被取消",
        "failed": "失败",
        "cancelled while nobody had answered": "无人答复时取消",
        "whoever was asked raised": "被询问者抛出异常",
        "a cancelled turn outlasts its grace period": "被取消的轮次超过了宽限期",
        "a parked turn goes on": "停放的轮次继续",
        "the call is taken up that a lost process had asked about": "接续已丢失的进程询问过的调用",
        "ask again, concurrent execute": "再次询问，并发执行",
        "monotonic guards": "单调的守卫",
        "deny or nothing": "deny 或不作答",
        "no guard denies": "没有守卫拒绝",
        "denied, unknown tool, or arguments that do not fit": "被拒绝、未知的工具，或参数不符",
        "check the arguments": "检查参数",
        "against the tool's schema": "对照工具的 schema",
        "the arguments fit": "参数相符",
        "around the body": "环绕工具主体",
        "body": "工具主体",
        "outcome": "结果",
        "the body has ended": "工具主体已结束",
        "accept or block": "accept 或 block",
        "the call becomes an error result": "该调用成为错误结果",
        "aborted": "已中止",
        "what was raised": "所抛出的异常",
        "cancelled while the body ran": "在工具主体运行期间取消",
        "cancelled before the body started": "在工具主体启动之前取消",
        "a guard or the body's wrapper raised": "守卫或工具主体的包装抛出异常",
        "a hook raised": "钩子抛出异常",
        # -- the earlier revisions -----------------------------------------------------------------------------------
        "per entered message": "每条进入的消息一次",
        "proposed step rejected or pre-step failed": "提议的步骤被拒绝，或 pre-step 失败",
        "claimed batch stays removed, no turn opens": "已认领的批次不再放回，不打开轮次",
        "retry in the open step: request again without repeating pre-step, users or prompt": (
            "在打开的步骤内重试：再次请求，不重复 pre-step、用户消息与提示词"
        ),
        "later step rejected": "后续步骤被拒绝",
        "enter later step": "进入后续步骤",
        "`agent/request` waterfall, then `llm/stream` waterfall": (
            "`agent/request` waterfall，然后 `llm/stream` waterfall"
        ),
        "cancelled after the failed step": "在失败的步骤之后取消",
        "a hook raised after the failed step": "失败的步骤之后，钩子抛出异常",
        "cancelled before a turn opened": "在轮次打开之前取消",
        "a fresh turn makes the request again": "由全新的轮次再次请求",
        "allow, block, or add context": "allow、block，或添加上下文",
        "or rejected `turn/end`": "或被拒绝的 `turn/end`",
        "checkpoint": "检查点",
        "the prompt is allowed": "提示词获准",
        "the prompt is blocked": "提示词被拦截",
        "cancelled before the step began": "在步骤开始之前取消",
        "something raised before the step began": "步骤开始之前有异常抛出",
        "the request failed": "请求失败",
        "of what was sent meanwhile": "其间送来的内容",
        "the turn is to stop": "轮次应当停止",
        "the turn goes on": "轮次继续",
        # -- the pictures themselves ---------------------------------------------------------------------------------
        "{levels} loops out": "跳出 {levels} 层循环",
        "scheduling, in model order": "调度，按模型顺序",
        "bodies overlap": "工具主体可以重叠",
        "each started call": "每个已启动的调用",
        "what runs goes on": "正在运行的继续运行",
        "and from outside, whenever it comes": "同时来自外部，随时可能到来",
        "nothing more comes": "不再有别的到来",
        "the loop around begins anew": "外层循环重新开始",
        "it begins": "正常开始",
        "nothing had begun": "尚未开始任何事",
        # -- the tables ----------------------------------------------------------------------------------------------
        "Phase": "阶段",
        "Event": "事件",
        "Guard": "守卫",
        "Says": "动作",
        "Leads to": "去向",
        "runs {lifecycle}": "运行 {lifecycle}",
        "runs several {lifecycle}": "并行运行多个 {lifecycle}",
        # -- the pages -----------------------------------------------------------------------------------------------
        "Drawn from the definition; an edit here is lost. To draw it again: `{command}`": (
            "本页由定义绘制，在此处的修改不会保留。重新绘制：`{command}`"
        ),
        "Overview": "概览",
        "How it usually goes. What the definition marks as not drawn or as folded is left out.": (
            "通常的过程。定义中标为不绘制或折叠的部分在此省略。"
        ),
        "It shows {shown} of {every} declared arrows.": "图中有 {shown} 条箭头，共声明 {every} 条。",
        "Everything": "全部",
        "Everything that can happen; nothing is left out. Brackets say how often, where that is not exactly once.": (
            "可能发生的一切，没有省略。方括号标明次数，恰好一次的不标。"
        ),
        "One step": "一个步骤",
        "The innermost lifecycle by itself, while nothing is cancelled and nothing raises.": (
            "只看最内层的生命周期：没有取消，也没有异常。"
        ),
        "Tool calls": "工具调用",
        "How the calls of one answer are scheduled, and what happens to each of them.": (
            "一次回答中的各个调用如何调度，以及每个调用经历什么。"
        ),
        "Cancel": "取消",
        "What each phase owes when its run is cancelled. Phases that owe the same stand together.": (
            "运行被取消时，每个阶段还欠什么。所欠相同的阶段列在一起。"
        ),
        "Retry": "重试",
        "The loop that the overview folds into a note.": "概览中折叠为注释的那个循环。",
        "States": "状态",
        "Every phase and every arrow. What a phase runs stands inside it.": (
            "所有阶段与所有箭头。一个阶段所运行的生命周期画在该阶段之内。"
        ),
        "Transitions": "转移",
        "What each phase does when it is entered, and where each of its events leads. Marks say how often: `?` at"
        " most once, `*` any number of times, `once` only when the phase is first entered in a run.": (
            "每个阶段在进入时做什么，它的每个事件又通向何处。标记说明次数：`?` 至多一次，`*` 任意次，"
            "`once` 仅在一次运行中首次进入该阶段时。"
        ),
        # -- the hook points -----------------------------------------------------------------------------------------
        "Hook points": "钩子点",
        "synchronous veto": "同步否决",
        "in {places}.": "位于 {places}。",
        "for every record of the session log.": "针对会话日志的每条记录。",
        "Listeners are told one after another, and what they return is ignored.": "依次通知各监听器，其返回值被忽略。",
        "Listeners are asked one after another until one answers.": "依次询问各监听器，直到有一个作答。",
        "Listeners run side by side, and all are awaited.": "各监听器并行运行，全部等待完成。",
        "Listeners wrap one another, the first registered outermost; each may call `next()` once.": (
            "监听器层层包裹，最先注册的在最外层；每个监听器可调用 `next()` 一次。"
        ),
        "Listeners are asked before it happens; one that raises prevents it.": (
            "在事情发生之前询问各监听器；只要有一个抛出异常，事情就不会发生。"
        ),
        "A listener returns {verdicts}.": "监听器返回 {verdicts}。",
        "It may change {what}.": "它可以改变：{what}。",
        "By `next(payload)` it may replace {fields} for what it wraps.": (
            "它可以通过 `next(payload)` 为其内层替换 {fields}。"
        ),
        "If it raises: {what}.": "若它抛出异常：{what}。",
        "The definition declares it; nobody describes what its listeners may do.": (
            "它由定义声明；没有任何一处描述其监听器可以做什么。"
        ),
        "Here run, in this order: {listeners}.": "在此依次运行：{listeners}。",
        "Nobody listens.": "没有监听器。",
        "the default": "默认实现",
        "or": "或",
        "and": "与",
        "outside the lifecycles.": "在各生命周期之外。",
        "A listener returns nothing.": "监听器不返回任何值。",
        "It may change nothing.": "它不可以改变任何东西。",
        # -- what the points allow -----------------------------------------------------------------------------------
        "contained and logged": "异常被就地拦下并记入日志",
        "the agent is not published": "该 agent 不予发布",
        "fails the turn": "轮次失败",
        "fails the turn, no recovery": "轮次失败，不做恢复",
        "error result of the call": "该调用得到错误结果",
        "error result of the call, post skipped": "该调用得到错误结果，跳过 post",
        "the append raises": "追加操作抛出该异常",
        "the first failure is raised after all have ended": "全部结束之后，抛出最先发生的失败",
        "nothing; it may send next-step input": "无，但可以送入 next-step 输入",
        "state of its own, before the model is chosen": "它自己的状态，在选择模型之前",
        "the selection of the step": "该步骤的选择",
        "whether the step opens, and its messages": "步骤是否打开，以及它的消息",
        "the prompt of the step": "该步骤的提示词",
        "the configuration of the attempt": "该次尝试的配置",
        "the stream of the attempt": "该次尝试的流",
        "whether the attempt is made again": "是否再次尝试",
        "whether the call runs": "调用是否运行",
        "whether the call runs, and its arguments": "调用是否运行，以及它的参数",
        "the outcome; the signal of its inner part": "结果；其内层所用的信号",
        "what the model sees of the outcome": "模型看到的结果",
        "whether the event is appended": "事件是否被追加",
        # -- our pages -----------------------------------------------------------------------------------------------
        "The lifecycles as pictures": "以图示呈现的生命周期",
        "Every page here is computed from a definition; the driver performs the newest one. `lifecycle diagrams` draws"
        " them all again, `lifecycle diagrams --check` says whether one is out of date.": (
            "这里的每一页都由定义计算得出；驱动器执行的是最新的定义。`lifecycle diagrams` 重新绘制所有页面，"
            "`lifecycle diagrams --check` 检查是否有页面过期。"
        ),
        "The lifecycle of an agent": "Agent 的生命周期",
        "From a wake to the next rest: an agent runs turns, a turn runs steps, and a step runs a pool of tool calls."
        " This is revision 000, the newest one, and what the driver performs.": (
            "从一次唤醒到下一次歇息：agent 运行轮次，轮次运行步骤，步骤运行一个工具调用池。"
            "这是最新的修订 000，也是驱动器所执行的定义。"
        ),
        "The lifecycle of a turn": "轮次的生命周期",
        "From `turn/start` to `turn/end`, with the steps between.": (
            "从 `turn/start` 到 `turn/end`，以及其间的各个步骤。"
        ),
        "The lifecycle of a step": "步骤的生命周期",
        "A step is proposed, entered, requested from the model, has its tools run, and ends.": (
            "步骤先被提议、进入，再向模型请求，运行所需的工具，然后结束。"
        ),
        "The lifecycle of a tool call": "工具调用的生命周期",
        "A call is allowed, guarded, checked, executed, and looked at once more.": (
            "一个调用先获准、经过守卫、接受检查，再执行，最后复查一次。"
        ),
        "Revision 2026-08": "修订 2026-08",
        "The snapshot of August 2026: a turn is opened before its first claim, and a retry stays in the open step.": (
            "2026 年 8 月的快照：轮次在首次认领之前打开，重试留在打开的步骤内。"
        ),
        "Revision 001": "修订 001",
        "An earlier revision: a rejected proposal opens no turn, and a retry is a turn of its own.": (
            "较早的修订：被拒绝的提议不打开轮次，每次重试自成一个轮次。"
        ),
        "Revision 002": "修订 002",
        "The oldest revision, also known as 003: prompts are queued live, and the turn goes on while a hook says so.": (
            "最早的修订，也称 003：提示词只在运行时排队，只要钩子要求，轮次就继续。"
        ),
        "Hook points outside the lifecycles": "各生命周期之外的钩子点",
        "In Python": "在 Python 中",
        "A lifecycle class draws itself: the format names a view, `state` or `table`; `sequence` is the overview.": (
            "生命周期类可以绘制自身：格式说明可以是某个视图、`state` 或 `table`；`sequence` 即概览。"
        ),
        "In Sphinx": "在 Sphinx 中",
        "Install `myst-parser` and `sphinxcontrib-mermaid`, write the page into the sources, and let CI run the same"
        " command with `--check`.": (
            "安装 `myst-parser` 与 `sphinxcontrib-mermaid`，把页面写入文档源目录，并让 CI 以 `--check` 运行同一命令。"
        ),
        "In MkDocs": "在 MkDocs 中",
        "Install `pymdown-extensions`, write the page as above, and say that a `mermaid` fence is a picture."
        " Material for MkDocs draws it; another theme needs `mermaid.min.js` among its scripts.": (
            "安装 `pymdown-extensions`，照上文写入页面，并声明 `mermaid` 围栏是一幅图。"
            "Material for MkDocs 会绘制它；其他主题需要在脚本中加入 `mermaid.min.js`。"
        ),
    }
)

_ONLY_WITH_HOOKS = frozenset(("Here run, in this order: {listeners}.", "Nobody listens.", "the default"))
"""What no page of ours says: they are drawn without anybody's hooks."""


class Catalogue:
    """Chinese words. What was asked for in vain is `missing` and was answered in English.

    Args:
        lifecycle: Its guards are code, which stays.
        more: Further counterparts, beside those of `CHINESE`.
    """

    def __init__(self, *lifecycles: type[Lifecycle], more: Mapping[str, str] = MappingProxyType({})) -> None:
        guards = {arrow.guard for whole in lifecycles for one in family(whole) for _, arrow in one.spec.arrows}
        self._known = {**CHINESE, **more}
        self._stays = STAYS | guards
        self._asked: dict[str, None] = {}

    def __call__(self, words: str) -> str:
        self._asked[words] = None
        return self._known.get(words, words)

    @property
    def missing(self) -> tuple[str, ...]:
        """What has no counterpart, in the order in which it was asked for."""
        return tuple(text for text in self._asked if text not in self._known and not self._is_code(text))

    @property
    def left_over(self) -> tuple[str, ...]:
        """The counterparts, and the texts said to stay, that nobody asked for."""
        asked = self._asked.keys() | _ONLY_WITH_HOOKS
        return tuple(text for text in (*self._known, *sorted(STAYS)) if text not in asked)

    def _is_code(self, text: str) -> bool:
        return text in self._stays or _CODE.fullmatch(text) is not None


def complaints(catalogues: Iterable[Catalogue]) -> tuple[str, ...]:
    """What is wrong with the words of all our pages together: each missing and each left-over counterpart by name."""
    all_of_them = list(catalogues)
    missing = dict.fromkeys(text for one in all_of_them for text in one.missing)
    left = [text for text in all_of_them[0].left_over if all(text in one.left_over for one in all_of_them)]
    return (
        *(f"no Chinese counterpart for {text!r}" for text in missing),
        *(f"a Chinese counterpart for {text!r}, which no page says" for text in left),
    )
