"""What the pages of the policies say, in English and Chinese, and from what the rest of each is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lifecycle.policies.compaction import CompactionOptions, compacting
from lifecycle.policies.context import Source, runtime_context
from lifecycle.policies.limits import LimitOptions, limiting
from lifecycle.policies.plan import PlanMode
from lifecycle.policies.retry import Backoff, RetryOptions, retrying
from lifecycle.policies.selection import ModelSwitch
from lifecycle.services.hooks import Hooks
from lifecycle.vocabulary.requests import ModelSelection


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
    "zh": "围绕循环的普通 hook 集合。它们只使用任何 hook 都可以使用的东西，并且可以相加：`retrying() + my_hooks`。"
    "`lifecycle hooks explain MODULE:HOOKS` 会说明谁在哪里运行。",
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
            " and turn. `lifecycle run` retries like this, unless it is told `--no-retry`.",
            "A connection that is cut after some text, a provider that asks for 7 seconds, and the answer.",
        ),
        Told(
            "重试",
            "暂时失败的请求在打开的步骤内、等待之后重新发出：逐字遵守提供方要求的等待，否则按失败类别做带完全抖动的指数退避。",
            "等待前记录 `llm/retry`，等待后记录 `llm/retry-started`；其间取消则什么也不会开始。"
            "如果失败的尝试已经流出文本，`llm/retry` 带有 `shown`：显示它的一方应重新开始。"
            "超过 `most_provider_seconds` 的等待既不等也不提前：轮次失败，并说明提供方要求了什么。"
            "已用的预算从日志读出，按步骤和轮次计算。`lifecycle run` 就这样重试，除非给出 `--no-retry`。",
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
            " and `lifecycle sessions compact ID --model NAME` do it by hand, as a maintenance task; they prune"
            " nothing, because a tool result is replaced only while a turn is open. A summary is no request of"
            " a step: no hook hears of it, and it is not made again if it fails; `compaction/summary` holds its"
            " usage.",
            "Pressure that pruning relieves, and an overflow that needs a summary too.",
        ),
        Told(
            "压缩",
            "当会话超出上下文窗口时，较旧的部分让位给一段摘要。替换者会引用被替换的内容，因此日志保留一切。",
            "`agent/pre-step` 处的压力由已报告的用量和对其余部分的估计得出；此处失败只是警告，步骤继续。"
            "`agent/request-error` 处只处理上下文溢出，并且只有在确有内容让位时才重新请求。先剪枝旧的工具结果。"
            "调用与其结果从不分开。`await compact(agent, options)` 和 `lifecycle sessions compact ID --model NAME` "
            "以维护任务的方式手动压缩；它们不剪枝，因为工具结果只能在轮次打开时被替换。"
            "摘要不是步骤的请求：没有 hook 得知它，失败时也不会重新请求；其用量记录在 `compaction/summary` 中。",
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
            " says; one that raises or takes too long is logged, and what it said before holds.",
            "Three turns, in the last of which the day is another one.",
        ),
        Told(
            "运行时上下文",
            "模型此刻应当知道的外部情况：放在步骤输入之后，并且只在变化时告知。",
            "快照由生命周期写入，不会为它打开步骤。来源只按其声明的频率被询问；抛出异常或耗时过长的来源会被记录，"
            "之前所说的继续有效。",
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
            " nobody offers is refused where it is selected. A switch belongs to one agent; a session that is"
            " resumed goes on with the route that its log tells of.",
            "Another model is chosen between two turns.",
        ),
        Told(
            "模型选择",
            "宿主可以随时选择另一条路由；它从下一个步骤边界起生效，并适用于该步骤的所有尝试。",
            "切换只告诉模型一次，在其后第一个被接纳的步骤中。无人提供的路由在选择时即被拒绝。一个开关只属于一个代理；恢复的会话沿用其日志中告知的路由。",
            "在两个轮次之间选择了另一个模型。",
        ),
        """from lifecycle.policies.selection import ModelSwitch

switch = ModelSwitch({"fast": ModelSelection(model="small"), "deep": ModelSelection(model="large", effort="high")})
agent = Agent(model, hooks=switch.hooks)
switch.select("deep")""",
        lambda: ModelSwitch({"deep": ModelSelection(effort="high")}).hooks,
        (ModelSwitch,),
    ),
    Policy(
        "plan-mode",
        Told(
            "Plan mode",
            "The model may look and think, and acts only once somebody has approved of its plan.",
            'Tools that do not declare an allowed kind (`@tool(kind="read")`) are taken out of the step. The'
            " model leaves by `exit_plan_mode`, whose call is put before the agent's approver; a host may enter"
            " and leave at any time. A switch holds from the next step boundary on and is told once, and again where a"
            " summary has taken the place of what was told. A session that is resumed goes"
            " on as its log says. What the approver is shown is what the model asked for: a hook that asks cannot"
            " change the arguments, so what"
            " another one has put in their place does not count for this call.",
            "A plan is made, approved, and carried out.",
        ),
        Told(
            "计划模式",
            "模型可以查看和思考，只有在有人批准其计划之后才行动。",
            '没有声明允许类别（`@tool(kind="read")`）的工具会从步骤中移除。模型通过 `exit_plan_mode` 离开，'
            "该调用会交给代理的批准者；宿主可以随时进入和离开。切换从下一个步骤边界起生效，并且只告知一次；"
            "如果摘要取代了所告知的内容，则再次告知。恢复的会话按其日志所说继续。"
            "批准者看到的就是模型所要求的：请求批准的 hook 不能更改参数，因此其他 hook 替换的参数对此调用无效。",
            "制定计划、获得批准并执行。",
        ),
        """from lifecycle.policies.limits import LimitOptions, limiting
from lifecycle.policies.plan import PlanMode

plan = PlanMode()
options = AgentOptions(approve=ask_the_user)
agent = Agent(model, tools=[*tools, plan.tool], hooks=plan.hooks, options=options)
plan.enter()""",
        lambda: PlanMode().hooks,
        (PlanMode,),
    ),
    Policy(
        "limits",
        Told(
            "Limits",
            "A turn comes to an end, also where its model calls tools for ever, or a hook sends it on whenever it"
            " wants to stop.",
            "A step beyond `max_steps` is not opened: the turn ends `aborted` by a hook whose reason says which"
            " limit it was, so that nobody takes it for a success. What was said for that step waits for the next"
            " turn. With `same_calls` a call that the turn has made that often, with the same arguments, is denied,"
            " and the model is told why.",
            "A call that is repeated is denied, and after three steps the turn ends.",
        ),
        Told(
            "上限",
            "轮次总会结束，即使模型不停地调用工具，或者某个 hook 在它想停时总让它继续。",
            "超出 `max_steps` 的步骤不会打开：轮次以 `aborted` 结束，由 hook 给出的原因说明是哪一个上限，"
            "因此没有人会把它当作成功。为该步骤所说的话留给下一个轮次。设置 `same_calls` 后，"
            "轮次以相同参数做过这么多次的调用会被拒绝，并告知模型原因。",
            "重复的调用被拒绝，三个步骤之后轮次结束。",
        ),
        """from lifecycle.policies.limits import LimitOptions, limiting

agent = Agent(model, hooks=limiting())
agent = Agent(model, hooks=limiting(LimitOptions(max_steps=50, same_calls=3)))""",
        lambda: limiting(LimitOptions(same_calls=3)),
        (LimitOptions,),
    ),
)

OPTIONS_ZH: Mapping[str, Mapping[str, str]] = {
    "RetryOptions": {
        "classes": "按失败代码说明重试什么。其他失败，以及声明自己不可重试的失败，留给下一个监听者。",
        "per_step": "一个步骤总共可以重试的次数，无论什么失败。",
        "per_turn": "一个轮次总共可以重试的次数。",
        "most_provider_seconds": "提供方可以要求的最长等待；在此之内逐字遵守。等待 0 不说明什么，不予理会。",
        "beyond": "要求更长时怎么办：`delegate` 把失败连同所要求的等待留给下一个监听者，这样没有人提前请求；"
        "`back-off` 则当作没有要求而退避。",
        "chance": "给出随机部分，从 0 到 1（不含）。",
    },
    "Backoff": {
        "retries": "在一个步骤中，这类失败之后再尝试的次数。",
        "base_seconds": "第一次等待的最长时间。",
        "most_seconds": "所有等待的最长时间。",
    },
    "CompactionOptions": {
        "model": "写摘要的适配器。默认是代理自己的模型，使用打开的步骤的路由。",
        "at": "达到上下文窗口的这一部分即有压力。",
        "keep": "最新的消息可以占用并保持原样的那部分上下文窗口。",
        "context_window": "以 token 计，用于没有说明容量的路由。两者都未知时，只有溢出和手动运行会压缩，"
        "各部分按现有会话计算。",
        "summary_tokens": "最长的摘要；窗口太小以致无济于事时更短。",
        "quote_tokens": "被替换部分中人所说的话有多少逐字重复，最新的优先。",
        "prune_beyond": "在最新的消息之前，超过此重量的工具结果先被缩短；None 则不剪枝。",
        "recoveries": "在没有回答的情况下，连续从多少次溢出中恢复。",
        "instruction": "告诉模型写什么。",
        "estimate": "提供方没有说明时，一条消息有多少 token。",
    },
    "Source": {
        "name": "上下文的名称；一个代理的两个来源不能同名。",
        "text": "询问有什么可说。异步函数可以等待；普通函数工作时一切停止。",
        "every_seconds": "过这么久才再次询问；其间所说的继续有效。默认每个步骤都问；`math.inf` 只问一次。",
        "most_seconds": "异步函数最多可以用多久。之后被取消，之前所说的继续有效。",
    },
    "ModelSwitch": {
        "routes": "按名称列出可选的路由。路由没有说明的部分保持代理自己的选择。",
    },
    "PlanMode": {
        "allowed": "保留的工具类别。没有声明类别的工具被移除。",
        "active": "是否一开始就打开。恢复的会话按其日志所说继续。",
    },
    "LimitOptions": {
        "max_steps": "一个轮次可以进行的步骤数。更多的不会打开。",
        "same_calls": "一个轮次可以用相同参数（无论拼写顺序）调用一个工具的次数；更多的调用被拒绝，并告知模型原因。"
        "None 不设上限：有些工具就是要反复询问的。",
    },
}
"""What each option means, by its class and its name; in English its docstring says so."""
