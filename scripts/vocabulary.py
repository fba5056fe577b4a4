"""Trains a SentencePiece vocabulary of T5's kind on the texts of a task.

python scripts/vocabulary.py --task parallel_en_de --data_dir multi30k --size 3968 \
  --output outputs/t5/vocabulary
"""

from __future__ import annotations

import argparse
import sys

from specsample.errors import UserError
from specsample.training import data


def main() -> int:
    """Trains it and says where it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True, help="as MIXTURE_OR_TASK_NAME of a run")
    parser.add_argument("--data_dir", help="folder of its data")
    parser.add_argument("--split", default="train", help="part of it (%(default)s)")
    parser.add_argument("--size", type=int, default=4000, help="pieces (%(default)s)")
    parser.add_argument("--output", required=True, help="the folder it is written to")
    args = parser.parse_args()
    try:
        texts = data.of_task(args.task, args.split, args.data_dir)
        print(data.train_vocabulary(texts, args.size, args.output))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
