"""The page of `scoreboard.py`: property by library, and the findings behind each cell."""

import collections
import dataclasses
import pathlib
import re
import textwrap

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
    ("no client process lives", "A request does not return within five seconds"),
    ("to extend it, when it was over", "An extension succeeds after the end of the lease"),
    (r"(\w+) deleted the key of \1 there", "A client deletes the keys of its own valid lease"),
    ("nothing was left of it", "An acquire returns a lease that has already ended"),
    ("believed without a quorum", "A client believes in a lease without a quorum"),
]
# The capability without which a property cannot be judged, and the scenarios that judge it.
NEEDS = {"fenced-resource": ("fence", "fenced-")}
ENOUGH = 3  # repetitions of one scenario that must show a finding


@dataclasses.dataclass
class Library:
    name: str
    package: str | None
    command: str | None
    settings: str
    options: list = dataclasses.field(default_factory=list)
    version: str | None = None


@dataclasses.dataclass
class Finding:
    """What the checkers found in runs of one library: each kind once."""

    layer: str
    title: str
    runs: collections.Counter  # scenario: repetitions that show it
    examples: dict  # scenario: what the checkers say about the first run that shows it
    files: dict  # scenario: its file, if it has one outside scenarios/

    def is_reproduced(self):
        return max(self.runs.values()) >= ENOUGH

    def best(self):
        """The scenario that shows it most often; of these, the first."""
        return max(self.runs, key=self.runs.get)


def title_of(story):
    text = " / ".join(story)
    for pattern, title in TITLES:
        if re.search(pattern, text):
            return title
    text = re.sub(r"[\d.]+ ms|\b\S{8}…|\d+", "…", story[0])
    return text[0].upper() + text[1:]


def findings(result):
    """The violations that no fault explains, folded by property and kind."""
    kinds = {}
    for run in result["scenarios"]:
        seen = {}
        for finding in run.get("findings", []):
            if finding["seen"] == "violated" and "bug" in finding["causes"]:
                key = finding["layer"], title_of(finding["story"])
                seen.setdefault(key, finding["story"])
        for key, story in seen.items():
            ended = [line for line in run["differences"] if line.startswith("process ")]
            kind = kinds.setdefault(key, Finding(*key, collections.Counter(), {}, {}))
            kind.runs[run["name"]] += 1
            kind.examples.setdefault(run["name"], [*ended, *story])
            kind.files[run["name"]] = run["file"]
    order = list(PROPERTIES)
    return sorted(kinds.values(), key=lambda one: (
        not one.is_reproduced(), order.index(one.layer), -len(one.runs)))


def by_design(result, layer):
    """The scenarios in which only faults outside the assumptions violate a property."""
    names = set()
    for run in result["scenarios"]:
        causes = [finding["causes"] for finding in run.get("findings", [])
                  if finding["seen"] == "violated" and finding["layer"] == layer]
        if causes and not any("bug" in each for each in causes):
            names.add(run["name"])
    return names


def missing(result):
    """Scenarios that were not run, by the capability that the driver does not offer."""
    names = collections.defaultdict(set)
    for run in result["scenarios"]:
        for why in run["differences"] if run["outcome"] == "skipped" else []:
            match = re.search(r"the client cannot `(\w+)`", why)
            names[match[1] if match else why].add(run["name"])
    return names


def judged(result):
    return [run for run in result["scenarios"] if run["observed"]]


def cell(library_findings, result, layer):
    if not judged(result):
        return "not run"
    if layer in NEEDS:
        need, scenarios = NEEDS[layer]
        if need in missing(result):
            return "not offered"
        if not any(run["name"].startswith(scenarios) for run in judged(result)):
            return "not run"
    numbered = [(number, one) for number, one in enumerate(library_findings, 1)
                if one.layer == layer]
    sure = [str(number) for number, one in numbered if one.is_reproduced()]
    rare = [str(number) for number, one in numbered if not one.is_reproduced()]
    if sure:
        return f"**violated**: {', '.join(sure)}"
    if rare:
        return f"unsteady: {', '.join(rare)}"
    count = len(by_design(result, layer))
    return f"holds ({count} by design)" if count else "holds"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def wrap(text, indent="", rest=None):
    rest = indent if rest is None else rest
    return textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=rest,
                         break_long_words=False, break_on_hyphens=False) + "\n"


def some(names, most=6):
    names = [f"`{name}`" for name in sorted(names)]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def finding_text(library, number, kind):
    each = [name for name, count in kind.runs.items() if count >= ENOUGH]
    rare = [name for name in kind.runs if name not in each]
    seen = f"Seen in each repetition of {some(each)}. " if each else ""
    if rare:
        seen += f"Seen in some repetitions of {some(rare)}. "
    scenario, indent = kind.best(), "   "
    text = wrap(f"{number}. **{kind.title}** ({kind.layer}). {seen}"
                f"For example, in `{scenario}`:", rest=indent)
    story = "".join(wrap(line, indent) for line in kind.examples[scenario])
    text += f"\n{indent}```text\n{story}{indent}```\n\n"
    run = kind.files[scenario] or scenario
    return text + f"{indent}`just scoreboard --library {library.name} --scenario {run}`\n"


def library_section(library, result, kinds):
    text = f"\n## {library.name}\n\n"
    total = len({run["name"] for run in judged(result)})
    version = f"{library.package} {library.version}" if library.package else "this repository"
    text += wrap(f"{version}; {library.settings}. "
                 f"Scenarios and variants: {total}; runs: {len(judged(result))}.")
    failed = [run for run in result["scenarios"] if run["outcome"] in ("environment", "internal")]
    if failed or not result["finished"]:
        text += "\n" + wrap(f"Not complete: {len(result['scenarios'])} of {result['runs']} runs "
                            f"ended, and {len(failed)} of these could not be run.")
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
| not offered | the library cannot do what the scenarios need |

An acquire is slow by the measure of the scenario: half a second and four node timeouts where it may
wait, less where it makes one attempt. The node timeout is 50 ms unless the scenario sets another
one. A library with longer timeouts of its own is slow by that measure.

[Scenarios](scenarios.md#expectations) defines the properties, and [how a run is
checked](scenarios.md#how-a-run-is-checked). The drivers are in
[`harness/drivers`](../harness/drivers). A single-server lock is judged by its own promise: its
clients know one master (`--quorum 1`). Each library has a report with timelines in
`target/scoreboard/whole`.
"""


def render(libraries, results, scenarios, date):
    kinds = {library.name: findings(results[library.name]) for library in libraries}
    masters = {result["masters"].split(" (")[0] for result in results.values()} - {""}
    repeats = max((max(collections.Counter(run["name"] for run in result["scenarios"]).values())
                   for result in results.values() if result["scenarios"]), default=0)
    text = HEAD + wrap(f"{date}, {', '.join(sorted(masters))}, {repeats} repetitions of each "
                       f"scenario.") + "\n"
    rows = [[f"`{layer}`: {what}"]
            + [cell(kinds[one.name], results[one.name], layer) for one in libraries]
            for layer, what in PROPERTIES.items()]
    text += table(["property", *(library.name for library in libraries)], rows)
    text += LEGEND.format(enough=ENOUGH)
    names = [pathlib.Path(name).stem if name.endswith(".toml") else name for name in scenarios]
    text += "\n" + wrap(f"The scenarios: {some(names, len(names))}, with their variants.")
    needs = sorted({need for library in libraries for need in missing(results[library.name])})
    if needs:
        text += "\n## Not offered\n\n" + wrap(
            "Scenarios that need a capability which the library or its driver does not have.")
        text += "\n" + table(["capability", *(library.name for library in libraries)], [
            [f"`{need}`" if " " not in need else need,
             *(len(missing(results[one.name]).get(need, ())) or "-" for one in libraries)]
            for need in needs])
    for library in libraries:
        text += library_section(library, results[library.name], kinds[library.name])
    return text
