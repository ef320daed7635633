"""The workflow as Snakemake parses it: ``python parsed.py ROOT SETTINGS ...`` prints a line of rules for each, as JSON.

Every file of weights that a user places is there, empty.

A process of its own: the parse changes the working directory, and keeps the modules of the rule files in memory.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
TRIES = (1, 2, 3)


@dataclass(frozen=True)
class Rule:
    """One rule. ``target``: it runs nothing; ``function``: what its job calls, below ``cxr``; ``resources``: of three
    tries each; what depends on wildcards is None. ``unnamed``: it has inputs to which the rule gives no name; ``made``:
    names of its outputs; ``file``: where it stands, below ``rules/``; ``options``: what it asks of ``PLAN.options``,
    "figures.dpi" of one key, "figures" of a stage's whole settings; ``settings``: keys of its param ``options``.
    """

    name: str
    target: bool
    file: str
    function: str
    modules: list[str]
    script: str
    environment: str
    group: str
    local: bool
    message: str
    log: list[str]
    benchmark: str
    input: list[str]
    unnamed: bool
    output: list[str]
    made: list[str]
    params: list[str]
    options: list[str]
    settings: list[str]
    resources: dict[str, list]
    threads: bool
    retries: bool


def rules(settings: dict | None = None, root: Path = ROOT) -> dict[str, Rule]:
    """Return {name: rule} of the workflow under some settings."""
    return _rules((json.dumps(settings or {}, sort_keys=True),), root)[0]


def working(settings: dict | None = None) -> dict[str, Rule]:
    """Return the rules that run something."""
    return {name: rule for name, rule in rules(settings).items() if not rule.target}


def rules_of_each(choices: list[dict], root: Path = ROOT) -> list[dict[str, Rule]]:
    """Return {name: rule} of the workflow under each of some settings. Snakemake is loaded once."""
    return _rules(tuple(json.dumps(settings, sort_keys=True) for settings in choices), root)


@cache
def _rules(choices: tuple[str, ...], root: Path) -> list[dict[str, Rule]]:
    command = [sys.executable, __file__, str(root), *choices]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [{rule["name"]: Rule(**rule) for rule in json.loads(line)} for line in done.stdout.splitlines()]


def _amount(value: object, attempt: int) -> object:
    try:
        return value(None, attempt=attempt) if callable(value) else value
    except (AttributeError, TypeError, KeyError):  # of the wildcards
        return None


ALL_KEYS = "*"
"""What :class:`_Section` hears where all keys are copied."""


class _Section(dict):
    """The settings of one stage: ``asked(key)`` hears which of them are taken one by one."""

    def __init__(self, section: dict, asked: Callable[[str], None]):
        super().__init__(section)
        self.asked = asked

    def __getitem__(self, key: str) -> object:
        self.asked(key)
        return super().__getitem__(key)

    def __or__(self, changes: dict) -> dict:
        self.asked(ALL_KEYS)
        return super().__or__(changes)


class _Options(dict):
    """``PLAN.options`` that writes down which rule asks for what."""

    def __init__(self, options: dict):
        super().__init__(options)
        self.rule = ""
        self.uses: list[tuple[str, str, set[str]]] = []

    def __getitem__(self, stage: str) -> _Section:
        parts: set[str] = set()
        self.uses.append((self.rule, stage, parts))
        return _Section(super().__getitem__(stage), parts.add)

    def of(self, rule: str) -> list[str]:
        """Return what a rule asked for."""
        names = [
            name
            for asking, stage, parts in self.uses
            for name in ([stage] if ALL_KEYS in parts or not parts else [f"{stage}.{part}" for part in parts])
            if asking == rule
        ]
        return sorted(set(names))


def _recorded(plans: list) -> None:
    """Let the plan be put in ``plans`` when it is made, with options that know the rule that is read."""
    from snakemake.workflow import Workflow

    from cxr.workflow import plan

    make_plan, read_rule, use_rule = plan.Plan, Workflow.rule, Workflow.userule
    name_rule = Workflow.name

    def kept(*given):
        made = make_plan(*given)
        made.options = _Options(made.options)
        plans.append(made)
        return made

    def named(self, name=None, **others):
        plans[0].options.rule = name
        return read_rule(self, name=name, **others)

    def directed(self, name):  # of a rule of a loop, which has its name in a directive
        plans[0].options.rule = name
        return name_rule(self, name)

    def used(self, *given, name_modifier=None, **others):
        plans[0].options.rule = name_modifier
        return use_rule(self, *given, name_modifier=name_modifier, **others)

    plan.Plan, Workflow.rule, Workflow.userule, Workflow.name = kept, named, used, directed


def _ask_params(rule, plan) -> list[str]:
    """Ask the params that depend on wildcards, for the first run, model, threshold set and so on that there is.

    Return the keys of the param ``options``.
    """
    firsts = {
        "run": plan.ils.runs, "model": plan.ils.predictions, "reference": plan.reporting.references,
        "thresholds": plan.sets, "stage": ["frames"], "shard": plan.shards,
        "study": ["s1"], "persona": plan.settings.paraphrase.personas,
        "mix": plan.radvlm.mixes, "source": plan.medground.sources,
    }  # fmt: skip
    wildcards = SimpleNamespace(**{name: next(iter(known), "none") for name, known in firsts.items()})
    plan.options.rule = rule.name
    params = dict(rule.params.items())
    for name, value in params.items():
        if callable(value):
            with suppress(AttributeError, KeyError):  # of a reference or a model where there is none
                params[name] = value(wildcards, *([],) * (len(signature(value).parameters) - 1))
    options = params.get("options", {})
    return sorted(options) if isinstance(options, dict) else []


def _plain(rule, root: Path, local: set[str], plan, settings: list[str]) -> dict:
    told = rule.ruleinfo
    params = dict(rule.params.items())
    amounts = told.resources[1] if told.resources else {}
    plain = Rule(
        name=rule.name,
        target=rule.norun,
        file=Path(rule.snakefile).relative_to(root).as_posix(),
        function=params.get("function", ""),
        modules=params.get("code", "").split(),
        script=str(rule.script or ""),
        environment=str(rule.conda_env or ""),
        group=told.group or "",
        local=rule.name in local,
        message=told.message or "",
        log=[str(path) for path in rule.log],
        benchmark=str(rule.benchmark or ""),
        input=sorted(rule.input.keys()),
        unnamed=bool(told.input and told.input[0]),
        output=[str(path) for path in rule.output],
        made=sorted(rule.output.keys()),
        params=sorted(params),
        options=plan.options.of(rule.name),
        settings=settings,
        resources={name: [_amount(value, attempt) for attempt in TRIES] for name, value in amounts.items()},
        threads=told.threads is not None,
        retries=told.retries is not None,
    )
    return asdict(plain)


def main(root: str, *choices: str) -> None:
    """Parse the workflow under each settings in a child of its own, which finds Snakemake loaded."""
    sys.path.insert(0, str(Path(root) / "scripts"))
    import snakemake.api  # noqa: F401

    import cxr.workflow.plan  # noqa: F401

    for settings in choices:
        child = os.fork()
        if child == 0:
            parse(root, settings)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(1)


def parse(root: str, settings: str) -> None:
    """Print the rules of the workflow under some settings."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings

    from cxr.imaging.weights.catalogue import list_placed_files
    from cxr.radvlm.evaluation.annotate_radgraph import PLACED
    from cxr.workflow import jobs

    # which modules a rule's digest is of, in place of the digest
    jobs.code_digest = lambda script, *modules: " ".join(modules)
    plans = []
    _recorded(plans)
    with tempfile.TemporaryDirectory() as directory, SnakemakeApi(OutputSettings(dryrun=True)) as api:
        weights = (name for names in list_placed_files("weights").values() for name in names)
        for path in (Path(directory, name) for name in (*weights, *(f"radgraph-xl/{one}" for one in PLACED))):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(config=json.loads(settings)),
            snakefile=Path(root) / "Snakefile",
            workdir=Path(directory),
        )._workflow
        settings = {rule.name: _ask_params(rule, plans[0]) for rule in workflow.rules}
        plain_rules = [
            _plain(rule, Path(root), workflow._localrules, plans[0], settings[rule.name]) for rule in workflow.rules
        ]
    print(json.dumps(plain_rules))


if __name__ == "__main__":
    main(*sys.argv[1:])
