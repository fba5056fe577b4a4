"""Target and draft model of a run, as a configuration names them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax

from specsample.errors import UserError
from specsample.models.model import Model
from specsample.models.resized import reconcile
from specsample.partitioning import states
from specsample.tasks import vocabularies
from specsample.tasks.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Loaders:
    """How the models are loaded.

    Attributes:
      model: loads the target.
      draft_model: loads the draft model; None if there is none.
      checkpoint_path: the `name` that `model` loads; None leaves it the one it has.
      draft_checkpoint_path: the same of `draft_model`, or of `model` if there is no other.
      vocabulary: as `vocabularies.load` takes it, in place of the models' own; None keeps those.
    """

    model: Callable[..., Model]
    draft_model: Callable[..., Model] | None = None
    checkpoint_path: str | None = None
    draft_checkpoint_path: str | None = None
    vocabulary: Any = None

    def load(
        self, placement: Callable[[], Any] | None, spare: Tokenizer | None = None
    ) -> tuple[Model, Model | None, Any]:
        """Loads them to where they belong.

        Args:
          placement: makes a `partitioning` placement over all devices; None is one device.
          spare: for models that have no tokenizer, if the configuration has none for them either.

        Returns:
          Target, draft model or None, and the placement or None.

        Raises:
          UserError: a checkpoint is not there or damaged, or the two do not fit together.
        """
        self._check()
        given = None if self.vocabulary is None else vocabularies.load(self.vocabulary)
        make_draft = self.draft_model
        if self.draft_checkpoint_path is not None:
            make_draft = make_draft or self.model

        def make(loader: Callable[..., Model], path: str | None, **options: Any) -> Model:
            found = _call(loader, options if path is None else {"name": path} | options)
            tokenizer = given or (spare if found.tokenizer is None else None)
            return found if tokenizer is None else vocabularies.attach(found, tokenizer)

        if placement is None:
            model, draft = make(self.model, self.checkpoint_path), None
            if make_draft is not None:
                draft = reconcile(model, make(make_draft, self.draft_checkpoint_path))
            return model, draft, None
        places = placement().resolve(jax.devices())
        draft = None
        if make_draft is not None:
            draft = make(make_draft, self.draft_checkpoint_path, layout=places.draft)
        model = make(self.model, self.checkpoint_path, layout=places.target)
        return states.place_pair(model, draft, places)

    def _check(self) -> None:
        for name in ("model", "draft_model"):
            loader = getattr(self, name)
            if not callable(loader) and (loader is not None or name == "model"):
                raise UserError(f"{name}={loader!r:.60}; give a function, such as @loading.load.")
        for name in ("checkpoint_path", "draft_checkpoint_path"):
            path = getattr(self, name)
            if path is not None and (not isinstance(path, str) or not path):
                raise UserError(f"{name}={path!r}; it must be a text that is not empty.")


def _call(loader: Callable[..., Model], options: dict[str, Any]) -> Model:
    try:
        return loader(**options)
    except TypeError as error:
        if not re.search("missing .* argument: 'name'", str(error)):
            raise
        raise UserError(
            "no checkpoint is named; give CHECKPOINT_PATH, or a file of configs/models."
        ) from error
