"""Convert the settings of SemiSynCXR to each rule's params: builtins, and for each stage only its own keys."""


def semisyn_options(plain: dict) -> dict[str, dict]:
    """Return {target: options}: the settings of each stage of SemiSynCXR, its findings and the seed.

    ``plain``: all settings as builtins.
    """
    system = plain["semisyn"]
    shared = {"seed": plain["seed"], "findings": system["findings"]}
    return {f"semisyn_{stage}": keys | shared for stage, keys in system.items() if isinstance(keys, dict)}
