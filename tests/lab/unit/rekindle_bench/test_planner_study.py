"""The comparison of planners on random topologies."""

from rekindle_bench import planner_study


def test_in_the_study_nothing_is_better_than_dp_and_auto_is_as_good() -> None:
    found = planner_study.compare(planner_study.FIG16[:1], [1, 2], lambda _: None)
    curves = {curve.solver: curve for curve in found}
    assert curves.keys() == set(planner_study.SOLVERS)
    best = curves["dp"].restored
    assert list(best) == sorted(best)
    for curve in found:
        pairs = zip(curve.restored, best, strict=True)
        assert all(0.0 <= restored <= at_most + 1e-9 for restored, at_most in pairs)
        assert all(0.0 <= worst <= 1.0 + 1e-9 for worst in curve.worst)
    assert min(curves["auto"].worst) >= 0.97
    assert sum(curves["operator-centric"].restored) < sum(curves["best-density"].restored)
