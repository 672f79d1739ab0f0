"""explain(fn)(*args): runs once under a listener and reports what the compiler did."""
from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from framejit import _framejit, api


MOST_GUARDS_PRINTED = 30  # by print(explanation)
MOST_WEIGHTS_PRINTED = 3  # of one graph
INPUT = re.compile(r"input %\S+ = (.*) : \w+\[([^\];]*)")  # of the text of a graph
SYMBOL = re.compile(r"\bs\d+\b")
NO_SYMBOL = re.compile(r"'[^']*'|%\w+|   #.*")  # names and lines of the program
EXPLAINED = tuple(name for name in api.SETTINGS if name != "disable")  # the settings of compile() that explain() takes


@dataclass(frozen=True)
class Event:
    """One log event: a row of the log tables with its fields."""
    id: str
    channel: str
    event: str
    at: str
    text: str
    artefact: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """What one call did. It prints as a report; programs read the events."""
    result: Any
    events: tuple[Event, ...]
    stats: Mapping[str, Any]

    def of(self, event: str) -> list[Event]:
        """The events of one kind: "Break", "Graph", "Guard", "Recompile", ..."""
        return [e for e in self.events if e.event == event]

    @property
    def breaks(self) -> list[Event]:
        return self.of("Break")

    @property
    def graphs(self) -> list[Event]:
        return self.of("Graph")

    @property
    def guards(self) -> list[Event]:
        return self.of("Guard")

    @property
    def recompiles(self) -> list[Event]:
        return self.of("Recompile")

    @property
    def fallbacks(self) -> list[Event]:
        """Where plain Python ran although nothing in the program asked for it."""
        return self.of("Fallback")

    @property
    def derived(self) -> list[Event]:
        """The weights that are derived once for many calls, or why there are none."""
        return self.of("Derived") + self.of("NotDerived")

    @property
    def replays(self) -> list[Event]:
        """What was recorded for replays, or why nothing was. The first call of each size records nothing."""
        return self.of("Recorded") + self.of("NotReplayed")

    def __str__(self) -> str:
        totals = self.stats
        lines = [f"graphs {totals.get('graphs', 0)}, breaks {totals.get('graph_breaks', 0)}, recompiles "
                 f"{totals.get('recompiles', 0)}, "
                 f"ops {totals.get('ops', 0)}, kernels {totals.get('kernels', 0)}, compiled in "
                 f"{totals.get('compile_seconds', 0.0):.3f} s"]
        if not (totals.get("graphs") or self.breaks or self.fallbacks):
            lines.append("no graph: this call does no work with tensors")
        for number, event in enumerate(self.breaks, 1):
            lines += ["", f"break {number} at {event.at}",
                      f"  {event.fields.get('reason', '')}: {event.fields.get('detail', '')}"]
            lines += [f"  | {line}" for line in event.artefact.splitlines()]
            if event.fields.get("hint"):
                lines.append(f"  what to do: {event.fields['hint']}")
        for event in self.fallbacks:
            lines += ["", f"plain run at {event.at}", f"  {event.fields['reason']}: {event.fields['detail']}",
                      f"  what to do: {event.fields['hint']}"]
        lines += self._lines_of_graphs()
        lines += self._lines_of_derived()
        lines += [line for event in self.replays for line in ("", event.text)]
        for event in self.recompiles:
            fields = event.fields
            lines += ["", f"recompile {event.id} at {event.at}: {fields['change']}",
                      f"  what to do: {fields['hint']}"]
        return "\n".join(lines + self._lines_of_guards())

    def _lines_of_graphs(self) -> list[str]:
        """Each graph belongs to an entry, which has the number of its compile. Says which sizes it is for, and whether
        another entry has taken its place."""
        lines = []
        symbols = {event.id: _symbols_of(event.artefact) for event in self.graphs}
        replaced = {event.fields["closest"]: event for event in self.recompiles if event.fields["symbols"] == "more"}
        dropped = {event.fields["entry"] for event in self.of("Entry") if event.fields["action"] == "evict"}
        for event in self.graphs:
            sizes = (f", for any {', '.join(symbols[event.id])}" if symbols[event.id]
                     else ", for these sizes alone" if any(symbols.values()) else "")
            lines += ["", f"graph {event.id} at {event.at}{sizes}"]
            if event.id in replaced:
                by = replaced[event.id]
                lines.append(f"  replaced by {by.id}, which has a symbol: {by.fields['change']}")
            if event.id in dropped:
                lines.append("  dropped, to make room for another (FRAMEJIT_ENTRIES)")
            lines += [f"  | {line}" for line in _framejit.with_short_lists(event.artefact).splitlines()]
        return lines

    def _lines_of_derived(self) -> list[str]:
        """Graphs of which the same is to say share a line."""
        counted = Counter(_derived_text(event) for event in self.derived)
        said = [text + (f"  ({n} graphs)" if n > 1 else "") for text, n in counted.items()]
        if len(said) < 2:
            return [line for text in said for line in ("", f"derived from weights: {text}")]
        return ["", "derived from weights", *(f"  {text}" for text in said)]

    def _lines_of_guards(self) -> list[str]:
        """What the program relies on comes first. How Python and torch find things is one line."""
        if not self.guards:
            return []
        lines = ["", f"guards ({len(self.guards)})"]
        plumbing = sum(event.fields["of"] == "plumbing" for event in self.guards)
        counted = Counter(event.fields["guard"] for event in self.guards if event.fields["of"] == "program")
        shown = sorted(counted.items(), key=lambda item: "  # " not in item[0])  # those without a line are about modes
        lines += [f"  {guard}" + (f"  ({n} times)" if n > 1 else "") for guard, n in shown[:MOST_GUARDS_PRINTED]]
        more = len(counted) - MOST_GUARDS_PRINTED
        rest = [f"{more} more"] if more > 0 else []
        if plumbing:
            rest.append(f"{plumbing} on how names, hooks and parameters are found")
        if rest:
            lines.append(f"  and {', '.join(rest)}: .guards of this object has them all")
        return lines


def _derived_text(event: Event) -> str:
    fields = event.fields
    if event.event == "NotDerived":
        return f"nothing: {fields['reason']}"
    weights = fields["weights"].split(", ")
    more = len(weights) - MOST_WEIGHTS_PRINTED
    return (f"{fields['values']} values, {fields['bytes']} bytes, of {', '.join(weights[:MOST_WEIGHTS_PRINTED])}"
            + (f" and {more} more" if more > 0 else ""))


def _symbols_of(graph: str) -> list[str]:
    """The symbols of a graph's text, with the sizes that they stand for: "s0 = L['x'].size(0)"."""
    found: dict[str, str] = {}
    for line in graph.splitlines():
        given = INPUT.match(line)
        for dim, size in enumerate(given[2].split(", ") if given else ()):
            if SYMBOL.fullmatch(size):
                found.setdefault(size, f"{size} = {given[1]}.size({dim})")
        for symbol in SYMBOL.findall(NO_SYMBOL.sub("", line)):
            found.setdefault(symbol, symbol)
    return list(found.values())


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """By how much each number has grown; other values are those after the call."""
    def number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    def added(value: Any, known: Any) -> Any:
        if isinstance(value, Mapping):
            counts = {k: added(v, (known or {}).get(k, 0)) for k, v in value.items()}
            return {k: n for k, n in counts.items() if n}
        return value - (known or 0) if number(value) else value
    return {k: added(v, before.get(k)) for k, v in after.items()}


def explain(model: Any, *arguments: Any, **options: Any) -> Callable[..., Explanation]:
    """Returns a function that compiles `model` anew, calls it once with its arguments, and returns an Explanation.

    Keyword options are those of compile(), except `disable`. What was compiled before is neither used nor dropped.
    """
    if arguments:
        raise TypeError("explain() takes the arguments of the call in a second pair of parentheses: "
                        "framejit.explain(f)(x)")
    for name in options:
        if name not in EXPLAINED:
            raise api.unknown_setting("explain", name, EXPLAINED)
    api.compile_afresh(model, **options)  # refuses at once what compile() refuses

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = api.compile_afresh(model, **options)
        raw: list[Mapping[str, Any]] = []
        before = _framejit.stats()
        token = _framejit.add_listener(raw.append)
        try:
            result = compiled(*args, **kwargs)
        finally:
            _framejit.remove_listener(token)
        events = tuple(Event(**{k: r[k] for k in Event.__dataclass_fields__}) for r in raw)
        return Explanation(result, events, _difference(before, _framejit.stats()))
    return run
