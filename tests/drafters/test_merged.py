"""Trees of several drafters; that they are exact is shown in tests/conformance."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from specsample import Engine, acceptance, drafters, trees
from specsample.cli import _gin
from specsample.drafters import merged
from specsample.drafters.autoregressive import Autoregressive
from specsample.drafters.lookup import Lookup
from specsample.drafters.merged import Merged
from specsample.drafters.none import NoDraft
from specsample.drafters.simulated import Simulated
from specsample.errors import UserError
from specsample.trees import Topology
from specsample.types import Commit
from specsample.verification import cases
from specsample.verification.trials import Trial
from tests.conformance.drafters import EXACT, MATCH, PROMPTS, decoder
from tests.drafters import toys

TABLE = toys.table()
DRAFT, OTHER = toys.table(seed=1), toys.table(seed=2)


def tree(parents, tokens, size=None, law=None, passes=0):
    made = toys.tree_of(parents, tokens, law)
    return dataclasses.replace(
        made, size=jnp.array([size or len(parents)]), passes=jnp.array([passes])
    )


def paths_of(made):
    """The texts that a tree guesses, those of repeats among them."""
    used = int(made.size[0])
    parents, tokens = made.parents[0, :used].tolist(), made.tokens[0, :used].tolist()
    found, texts = set(), [()]
    for node in range(1, used):
        texts.append((*texts[parents[node]], tokens[node]))
        found.add(texts[node])
    return found


def test_grafted_trees_keep_their_nodes_and_those_in_use_come_first():
    one = tree((-1, 0, 1, 2), (9, 1, 2, 3), size=2, passes=3)
    other = tree((-1, 0, 0, 2), (9, 4, 5, 6), passes=2)
    both = trees.graft([one, other])
    assert both.tokens[0].tolist() == [9, 1, 4, 5, 6, 2, 3]
    assert both.parents[0].tolist() == [-1, 0, 0, 0, 3, 1, 5]
    assert both.eligible[0].tolist() == [True] * 5 + [False] * 2
    assert both.size.tolist() == [5] and both.passes.tolist() == [5] and both.law is None


def test_a_repeat_stays_as_a_leaf_and_its_children_move():
    one, other = tree((-1, 0, 1), (9, 1, 2)), tree((-1, 0, 1), (9, 1, 3))
    both = trees.graft([one, other])
    assert both.tokens[0].tolist() == [9, 1, 2, 1, 3]
    assert both.parents[0].tolist() == [-1, 0, 1, 0, 1]
    assert both.eligible.all()


def test_paths_are_the_union_whatever_the_order_and_however_often():
    one, other = tree((-1, 0, 1, 0), (9, 1, 2, 4)), tree((-1, 0, 1, 2), (9, 1, 3, 2))
    union = paths_of(one) | paths_of(other)
    for parts in ([one, other], [other, one], [one, other, one], [trees.graft([one, other]), one]):
        assert paths_of(trees.graft(parts)) == union


def test_laws_become_one_hot_only_beside_laws():
    law = np.array([[0, 0, 0], [0.2, 0.3, 0.5]])
    drawn, point = tree((-1, 0), (0, 2), law=law), tree((-1, 0), (0, 1))
    both = trees.graft([point, drawn])
    np.testing.assert_allclose(both.law[0, 1:], [[0, 1, 0], [0.2, 0.3, 0.5]])
    assert trees.graft([point, point]).law is None


def test_a_merged_drafter_adds_up_its_parts():
    chain, lookup = Autoregressive(TABLE.network, Topology.chain(4)), Lookup(gamma=7, brief=3)
    both = Merged((lookup, chain))
    assert (both.depth, both.nodes, both.draws) == (7, 12, 4)
    assert both.widths == (5, 8, 12) and both.context is None
    assert Merged((lookup,) * 3).widths == (1, 8, 14, 22)
    short = Autoregressive(dataclasses.replace(TABLE.network, context=9), Topology.chain(1))
    assert Merged((chain, short)).context == TABLE.network.context


@dataclasses.dataclass(frozen=True)
class Tapping(NoDraft):
    """Keeps the features that it is told."""

    taps: tuple[int, ...]

    def update(self, params, state, commit):
        return commit.features


def test_parts_see_the_features_that_they_tap():
    both = Merged((Tapping((3, 1)), Tapping(()), Tapping((2,))))
    assert both.taps == (1, 2, 3)
    features = jnp.arange(3.0).reshape(1, 1, 3, 1) + 1
    commit = Commit(jnp.zeros((1, 1), jnp.int32), jnp.array([1]), features)
    prompt = type("", (), {"tokens": commit.tokens})
    state = both.update(((),) * 3, both.init(((),) * 3, prompt, 4), commit)
    assert state.parts[0].ravel().tolist() == [3, 1] and state.parts[1] is None
    assert state.parts[2].ravel().tolist() == [2] and state.length.tolist() == [1]


def test_a_part_beyond_its_context_lets_the_others_go_on():
    state = decoder("merged").run([[3, 1, 4, 0, 5, 2, 3, 1]], EXACT, max_new=20)
    steps = int(state.statistics.target_passes[0])
    assert steps > 3 and int(state.length[0]) == 28  # the short model ends at 12
    assert int(state.statistics.drafted[0]) >= 4 * (steps - 1)
    assert state.draft.parts[2].cache.fault[0] and not state.draft.parts[1].cache.fault.any()


def test_greedy_rows_get_the_best_of_all_parts():
    tree, merged = (
        decoder(name).run(PROMPTS, EXACT, steps=1).length for name in ("tree", "merged")
    )
    assert (merged >= tree).all() and (merged > tree).any()


def test_testing_each_guess_rejects_less_than_matching_a_draw():
    """Theorem 4.3 of SpecInfer, on every pair of tables and for every control."""
    [several] = [s for s in cases.CASES["merged"]() if s.label == "three chains"]
    trial = Trial(several, 2)
    found = {rule: dict(trial.laws(rule)) for rule in (EXACT, MATCH)}
    gain = [found[EXACT][case].accepted - found[MATCH][case].accepted for case in found[EXACT]]
    assert min(gain) > -1e-5 and max(gain) > 0.1


def test_build_takes_names_options_functions_and_drafters():
    from specsample.drafters import autoregressive, lookup

    ready = autoregressive.build(TABLE, OTHER, gamma=1)
    parts = ("lookup", ("autoregressive", {"gamma": 2}), lookup.build, ready)
    made, params = merged.build(TABLE, DRAFT, parts)
    assert made.parts == (Lookup(), Autoregressive(TABLE.network, Topology.chain(2)), Lookup(),
                          ready[0])  # fmt: skip
    assert params == ((), DRAFT.params, (), OTHER.params)
    assert drafters.build("merged", TABLE, DRAFT, parts=parts)[0] == made


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "name at least one drafter"),
        ("lookup", r"write \('lookup',\)"),
        (("lokup",), "unknown drafter 'lokup'"),
        ((3,), "parts: 3 is no drafter; give a name"),
        ((("lookup", {"gama": 3}),), "no option 'gama'"),
        ((("lookup", {"gamma": 200}),) * 2, "at most 255 guesses"),
        (("lookahead",), "parts: Lookahead learns from the scores of its own tree"),
    ],
)
def test_bad_parts_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        merged.build(TABLE, DRAFT, parts)


def test_a_draft_model_that_no_part_uses_is_refused():
    with pytest.raises(UserError, match="'merged' with parts=.* uses no draft model"):
        Engine(TABLE, "merged", draft=DRAFT, parts=("lookup", "none"))
    assert not drafters.uses_draft_model("merged", parts=("lookup", ("skip", {"gamma": 1})))
    assert drafters.uses_draft_model("merged", parts=(("merged", {"parts": ("autoregressive",)}),))


def test_a_draft_model_of_its_own():
    build = lambda target, draft=None: drafters.with_model(target, draft, model=lambda: OTHER)  # noqa: E731
    _, params = merged.build(TABLE, DRAFT, ("autoregressive", build))
    assert params == (DRAFT.params, OTHER.params)
    with pytest.raises(ValueError, match="model must be given"):
        drafters.with_model(TABLE)
    with pytest.raises(UserError, match="use a draft with the target's vocabulary"):
        drafters.with_model(TABLE, model=lambda: toys.table(vocab=9))


def test_a_recording_may_be_a_part():
    """Point masses that use uniforms, in front of others that do."""
    made = Merged((Simulated(2, 6), Autoregressive(TABLE.network)))
    recording = drafters.build("simulated", TABLE, gamma=2)[1]
    engine = Engine(TABLE, (made, (recording, DRAFT.params)))
    plain = Engine(TABLE, "none", acceptance.Exact())
    one, other = (e.generate([[1, 2], [3]], max_new_tokens=8) for e in (engine, plain))
    assert [c.ids for c in one.completions] == [c.ids for c in other.completions]


def built(drafter):
    """What a configuration is for, here."""
    return drafter(TABLE, DRAFT)


def test_configurations_name_parts_and_models_of_their_own(tmp_path):
    path = tmp_path / "several.gin"
    path.write_text(
        "from __gin__ import dynamic_registration\n"
        "include 'drafters/merged.gin'\n"
        "from specsample import drafters\n"
        "from specsample.drafters import autoregressive\n"
        "from specsample.drafters import lookup\n"
        "from specsample.drafters import merged\n"
        "from tests.drafters import test_merged\n"
        "from tests.drafters import toys\n"
        "test_merged.built.drafter = %DRAFTER\n"
        "merged.build.parts = (@lookup.build, @one/drafters.with_model, @two/drafters.with_model)\n"
        "lookup.build.gamma = 2\n"
        "drafters.with_model.model = @toys.table\n"
        "two/drafters.with_model.part = @autoregressive.build\n"
        "two/autoregressive.build.gamma = 1\n"
        "one/toys.table.seed = 5\n"
        "two/toys.table.seed = 6\n"
    )
    made, params = _gin.configure(built, [str(path)], [], ())()
    assert [part.depth for part in made.parts] == [2, 4, 1]
    for own, seed in zip(params[1:], (5, 6), strict=True):
        np.testing.assert_array_equal(own["logits"], toys.table(seed=seed).params["logits"])
