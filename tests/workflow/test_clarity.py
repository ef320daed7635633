"""Names of the package say what values are: functions with names that say nothing are counted, and get no more."""

import clarity


def test_names_that_say_nothing_are_found_wherever_they_are_bound(tmp_path):
    (tmp_path / "made.py").write_text("def read(path, other):\n    found_boxes = [box for box in path]\n")
    (tmp_path / "boxes.py").write_text(
        "class Drawn:\n    def area(self):\n        given, rest = 1, 2\n        return given\n\ndef of():\n    ...\n"
    )
    faults = [(path.name, line, names) for path, line, names in clarity.empty_names(tmp_path)]
    assert sorted(faults) == [
        ("boxes.py", 1, "Drawn"), ("boxes.py", 2, "given, rest"), ("boxes.py", 6, "of"), ("made.py", 1, "made"),
        ("made.py", 1, "other"),
    ]  # fmt: skip


def test_no_package_exceeds_its_budget():
    assert clarity.over_budget() == []
