"""The pages of `scoreboard.py`: property by library, and the findings behind each cell."""

import collections
import dataclasses
import pathlib
import re
import textwrap

import jinja2

PROPERTIES = {
    "mutual-exclusion": "two clients never hold the resource at once",
    "unfenced-resource": "no update of the protected resource is lost",
    "fenced-resource": "no update is lost where the resource checks fencing tokens",
    "validity": "a lease is true until its deadline",
    "progress": "an acquire succeeds in time if a majority replies and the resource is free",
    "liveness": "after the faults, every client can acquire",
    "hygiene": "no key is left over, and no client touches another client's key",
}

# What a finding means, by the checkers' sentence about it. The first match counts.
TITLES = [
    ("in another attempt", "The attempts of one request share a token"),
    ("got it only at", "An acquire is slow although a majority replies"),
    (r"was refused at .*\(no-quorum\)", "An acquire fails although a majority replies"),
    (r"was refused at .*\(taken\)",
     "An acquire fails as taken although no client holds the resource"),
    (r"was refused at .*\(late\)", "An acquire ends too late although a majority replies"),
    (r"was refused at .*\(refused\)", "An acquire is refused although nothing is in its way"),
    ("no client process lives", "A request does not return within five seconds"),
    ("to extend it, when it was over", "An extension succeeds after the end of the lease"),
    ("its lock said that it still holds it", "A check finds a lease held that is over"),
    ("its lock extended it at", "A lease that was extended after its end loses an update"),
    (r"(\w+) deleted the key of \1 there", "A client deletes the keys of its own valid lease"),
    ("nothing was left of it", "An acquire returns a lease that has already ended"),
    ("believed without a quorum", "A client believes in a lease without a quorum"),
    ("both believed that they hold", "Two clients believe at once that they hold"),
    ("no master keeps its key for longer", "A lease is promised for longer than its TTL"),
    ("it was not true from", "A lease ends on the masters before its deadline"),
    ("what came between is lost", "An update of the protected resource is lost"),
]
# The capability without which a property cannot be checked, and the scenarios that check it.
NEEDS = {"fenced-resource": ("fence", "fenced-")}
ENOUGH = 3  # repetitions of one scenario that must show a finding


@dataclasses.dataclass
class Library:
    name: str
    command: str | None
    settings: str
    options: list = dataclasses.field(default_factory=list)

    def title(self, result):
        """The lock with its version, as its driver announces them, and the settings."""
        return f"{result['lock'] or self.name}; {self.settings}"

    def replay(self, run):
        """The command that runs a scenario again, given its run in `result.json`."""
        scenario = pathlib.Path(run["file"]).stem if run["file"] else run["name"]
        return f"just scoreboard --library {self.name} --scenario {scenario}"


@dataclasses.dataclass
class Finding:
    """What the checkers found in runs of one library: each kind once."""

    property: str
    title: str
    runs: collections.Counter  # scenario: repetitions that show it
    examples: dict  # scenario: the first run that shows it, and what the checkers say about it

    def is_reproduced(self):
        return max(self.runs.values()) >= ENOUGH

    def example(self):
        """The run to look at, of the scenario that shows it most often, and its explanation."""
        return self.examples[max(self.runs, key=self.runs.get)]

    def seen(self, quote="`"):
        """Which scenarios show it."""
        each = [name for name, count in self.runs.items() if count >= ENOUGH]
        rare = [name for name in self.runs if name not in each]
        often = f"At least {ENOUGH} repetitions of {some(each, quote)} show it. " if each else ""
        return often + (f"Fewer repetitions of {some(rare, quote)} show it. " if rare else "")


@dataclasses.dataclass
class Cell:
    """What is known of a property of a library."""

    word: str  # holds, violated, unsteady, undecided, not offered, not run
    findings: list = dataclasses.field(default_factory=list)  # with their numbers
    by_design: list = dataclasses.field(default_factory=list)  # runs, each with its violation
    undecided: list = dataclasses.field(default_factory=list)  # scenarios

    def __str__(self):
        sure = self.word == "violated"
        numbers = [str(number) for number, one in self.findings if one.is_reproduced() == sure]
        word = f"**{self.word}**" if sure else self.word
        if numbers:
            return f"{word}: {', '.join(numbers)}"
        return word + (f" ({', '.join(self.notes())})" if self.notes() else "")

    def notes(self):
        """In how many scenarios something else is known, or nothing is."""
        design, open_ = len(self.by_design), len(self.undecided)
        return ([f"{design} by design"] if design else []) + (
            [f"{open_} undecided"] if open_ and self.word != "undecided" else [])


def title_of(explanation):
    text = " / ".join(explanation)
    for pattern, title in TITLES:
        if re.search(pattern, text):
            return title
    text = re.sub(r"[\d.]+ ms|\b\S{8}…|\d+", "…", explanation[0])
    return text[0].upper() + text[1:]


def is_explained(finding):
    """Whether only faults outside the assumptions caused a violation."""
    return not {"bug", "unknown"} & set(finding["causes"])


def findings(result):
    """The violations that no fault explains, folded by property and kind."""
    kinds = {}
    for run in result["scenarios"]:
        seen = {}
        for finding in run.get("findings", []):
            if finding["seen"] == "violated" and not is_explained(finding):
                key = finding["property"], title_of(finding["explanation"])
                seen.setdefault(key, finding["explanation"])
        for key, explanation in seen.items():
            ended = [line for line in run["differences"] if line.startswith("process ")]
            kind = kinds.setdefault(key, Finding(*key, collections.Counter(), {}))
            kind.runs[run["name"]] += 1
            kind.examples.setdefault(run["name"], (run, [*ended, *explanation]))
    order = list(PROPERTIES)
    return sorted(kinds.values(), key=lambda one: (
        not one.is_reproduced(), order.index(one.property), -len(one.runs)))


def by_design(result, property):
    """For each scenario in which only faults outside the assumptions violate a property: its first
    run, and the violation."""
    found = {}
    for run in result["scenarios"]:
        of_property = [finding for finding in run.get("findings", [])
                       if finding["seen"] == "violated" and finding["property"] == property]
        if of_property and all(map(is_explained, of_property)):
            found.setdefault(run["name"], (run, of_property[0]))
    return list(found.values())


def undecided(result, property):
    """The scenarios of which no run shows whether a property holds."""
    seen = collections.defaultdict(set)
    for run in checked(result):
        seen[run["name"]].add(run["observed"].get(property))
    return [name for name, verdicts in seen.items() if verdicts == {"inconclusive"}]


def missing(result):
    """Scenarios that were not run, by the capability that the driver does not offer."""
    names = collections.defaultdict(set)
    for run in result["scenarios"]:
        for why in run["differences"] if run["outcome"] == "skipped" else []:
            match = re.search(r"the client cannot `(\w+)`", why)
            few = "leaves no quorum" in why
            names["more-masters" if few else match[1] if match else why].add(run["name"])
    return names


def checked(result):
    return [run for run in result["scenarios"] if run["observed"]]


def cell(library_findings, result, property):
    if not checked(result):
        return Cell("not run")
    if property in NEEDS:
        need, scenarios = NEEDS[property]
        if need in missing(result):
            return Cell("not offered")
        if not any(run["name"].startswith(scenarios) for run in checked(result)):
            return Cell("not run")
    numbered = [(number, one) for number, one in enumerate(library_findings, 1)
                if one.property == property]
    sure = any(one.is_reproduced() for _, one in numbered)
    open_ = undecided(result, property)
    names = {run["name"] for run in checked(result)}
    word = ("violated" if sure else "unsteady" if numbered
            else "undecided" if len(open_) == len(names) else "holds")
    return Cell(word, numbered, by_design(result, property), open_)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def wrap(text, indent="", rest=None):
    rest = indent if rest is None else rest
    return textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=rest,
                         break_long_words=False, break_on_hyphens=False) + "\n"


def some(names, quote="`", most=6):
    names = [f"{quote}{name}{quote}" for name in sorted(names)]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def finding_text(library, number, kind):
    indent, (run, lines) = "   ", kind.example()
    text = wrap(f"{number}. **{kind.title}** ({kind.property}). {kind.seen()}"
                f"For example, in `{run['name']}`:", rest=indent)
    explanation = "".join(wrap(line, indent) for line in lines)
    text += f"\n{indent}```text\n{explanation}{indent}```\n\n"
    return text + f"{indent}`{library.replay(run)}`\n"


def runs_of(result):
    total = len({run["name"] for run in checked(result)})
    return f"Scenarios and variants: {total}; runs: {len(checked(result))}."


def incomplete(result):
    """What is missing in results that are not whole."""
    failed = [run for run in result["scenarios"] if run["outcome"] in ("environment", "internal")]
    if not failed and result["finished"]:
        return None
    return (f"Not complete: {len(result['scenarios'])} of {result['runs']} runs ended, and "
            f"{len(failed)} of these could not be run.")


def library_section(library, result, kinds):
    text = f"\n## {library.name}\n\n" + wrap(f"{library.title(result)}. {runs_of(result)}")
    if incomplete(result):
        text += "\n" + wrap(incomplete(result))
    if not kinds:
        text += "\nNo finding.\n"
    for number, kind in enumerate(kinds, 1):
        text += "\n" + finding_text(library, number, kind)
    return text


HEAD = """\
# Scoreboard

After this page you know how locks of other libraries behave under faults that a Redlock must
tolerate, and with which command you see it yourself. `just scoreboard` writes this page.

"""

LEGEND = """
| cell | meaning |
|---|---|
| holds | no run violates the property |
| (n by design) | in n scenarios, a fault outside the assumptions of the algorithm violates it |
| **violated**: 1 | finding 1 of the library's section below: at least {enough} repetitions of one \
scenario show it, and no fault outside the assumptions explains it. The cell omits \
unsteady findings of the same property; that section lists them |
| unsteady: 2 | finding 2 below, in fewer repetitions |
| undecided, (n undecided) | in no scenario, or not in n of them, can the harness tell: mostly \
because it does not [understand](scenarios.md#commands-that-the-harness-understands) the library's \
commands |
| not offered | the library cannot do what the scenarios need |

`progress` is demanded in [calm stretches](scenarios.md#calm-stretches) of a run, and where the
scenario says what a lock owes under its fault, such as a grant within half a second while one
master of five hangs. These limits suit the node timeout of the scenario, which is 50 ms unless it
sets another one. A library with longer timeouts of its own is slow by that measure.

[Scenarios](scenarios.md#expectations) defines the properties, and [how a run is
checked](scenarios.md#how-a-run-is-checked). The drivers are in
[`harness/drivers`](../harness/drivers). A single-server lock is checked against its own promise:
its clients know one master (`--quorum 1`). redquorum is the control. `just scoreboard` also writes
`target/scoreboard/whole/scoreboard.html`, where each cell leads to the explanation, the command and
the timeline of its runs.
"""

# Kept by hand: it compares this page with the one before it.
SINCE = """
## No findings any more

The page before this one was of 2026-11-23 and 2026-11-28. These findings of it are none by the
rules of today. The other ones are still there, some of them in other scenarios.

| finding | of | why it is none |
|---|---|---|
| the attempts of one request share a token | rslock, redlock-py | this violates `validity` only \
[while a delete of an earlier attempt may be on its way](scenarios.md#valid-leases) |
| an acquire is slow or fails in `crash-restart-forgets`, `even-masters`, `extend-after-amnesia`, \
`extend-over-a-gap`, `majority-killed`, `slow-replies`, `token-reused`, `zombie-set` | all \
libraries but python-redis-lock | `progress` is demanded in [calm \
stretches](scenarios.md#calm-stretches), and where a scenario says what a lock owes under its \
fault |
| an acquire is slow or fails in `release-lost` | rslock, pottery, aioredlock, redis-py | the \
algorithm pays with one TTL if the network fails as a holder releases, so that scenario allows it |
| a request does not return within five seconds | redlock-py, aioredlock | the harness heals all \
faults, waits once more, and then judges `liveness`. That these requests are slow is a finding of \
`progress` |
| an extension succeeds after the end of the lease, in `extend-after-amnesia` | aioredlock | the \
library names no deadline, and no longer does its driver: the harness counts it from the attempt \
that was granted |
| an acquire returns a lease that has already ended | redis-py | likewise: the key was still there |
| a client deletes the keys of its own valid lease | aioredlock | one or two runs of five showed \
it, and none of three today |
| an acquire fails as taken in `minority-partitioned/in-the-middle` | redis-py | the only master \
of its clients is cut off there, so the scenario is skipped |
"""


def occasion(results, date, note=None):
    """When, on what, and how often the scenarios were run."""
    masters = {result["masters"].split(" (")[0] for result in results.values()} - {""}
    counts = [collections.Counter(run["name"] for run in result["scenarios"])
              for result in results.values()]
    repeats = max((max(count.values()) for count in counts if count), default=0)
    text = f"{date}, {', '.join(sorted(masters))}, {repeats} repetitions of each scenario."
    return f"{text} {note}" if note else text


def render(libraries, results, scenarios, date, note=None):
    """The page in Markdown."""
    kinds = {library.name: findings(results[library.name]) for library in libraries}
    text = HEAD + wrap(occasion(results, date, note)) + "\n"
    rows = [[f"`{property}`: {what}"]
            + [cell(kinds[one.name], results[one.name], property) for one in libraries]
            for property, what in PROPERTIES.items()]
    text += table(["property", *(library.name for library in libraries)], rows)
    text += LEGEND.format(enough=ENOUGH)
    names = [pathlib.Path(name).stem if name.endswith(".toml") else name for name in scenarios]
    text += "\n" + wrap(f"The scenarios: {some(names, most=len(names))}, with their variants.")
    needs = sorted({need for library in libraries for need in missing(results[library.name])})
    if needs:
        text += "\n## Not offered\n\n" + wrap(
            "Scenarios that need what the library or its driver does not have. `more-masters`: the "
            "fault leaves no master to a single-server lock.")
        text += "\n" + table(["capability", *(library.name for library in libraries)], [
            [f"`{need}`" if " " not in need else need,
             *(len(missing(results[one.name]).get(need, ())) or "-" for one in libraries)]
            for need in needs])
    for library in libraries:
        text += library_section(library, results[library.name], kinds[library.name])
    return text


SIGNS = {"holds": ("holds", "✓"), "violated": ("wrong", "✗"), "unsteady": ("open", "?"),
         "undecided": ("open", "?"), "not offered": ("none", "–"), "not run": ("none", "–")}
TEMPLATES = [pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[2] / "crates/cli/src/page"]


def render_html(libraries, results, date, note=None):
    """The page in the style of report.html, beside the folders of the libraries' reports."""

    def example(library, run, lines):
        number = results[library.name]["scenarios"].index(run) + 1
        return {"scenario": run["name"], "lines": lines, "command": library.replay(run),
                "report": f"{library.name}/report.html#run-{number}"}

    columns = []
    for library in libraries:
        result = results[library.name]
        kinds = findings(result)
        cells = []
        for property, what in PROPERTIES.items():
            one = cell(kinds, result, property)
            style, sign = SIGNS[one.word]
            cells.append({
                "property": property, "what": what, "word": one.word, "class": style, "sign": sign,
                "notes": one.notes(),
                "findings": [{"title": kind.title, "seen": kind.seen(quote=""),
                              **example(library, *kind.example())} for _, kind in one.findings],
                "by_design": [{"causes": violation["causes"],
                               **example(library, run, violation["explanation"])}
                              for run, violation in one.by_design]})
        columns.append({
            "name": library.name, "title": library.title(result), "cells": cells,
            "runs": runs_of(result), "incomplete": incomplete(result),
            "checked": sorted({run["name"] for run in checked(result)}),
            "missing": {need: sorted(names) for need, names in sorted(missing(result).items())}})
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined,
        autoescape=lambda name: name.endswith(".html"), trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("scoreboard.html").render(
        columns=columns, properties=PROPERTIES, occasion=occasion(results, date, note),
        enough=ENOUGH)
