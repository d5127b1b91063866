"""Case 17: S3 servers without multi-object delete, without conditions, or with conflicts.

Rewritten: the small server is the one of `s3_server`, which has the same quirks.
"""

import os

import verdicts
from s3_server import Quirks, serving

from rekindle_store import store_files

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
# The quirks, and the right answer.
SERVERS = {
    "plain": (Quirks(), "accepted"),
    "overwrites": (Quirks(overwrites=True), "refused: the condition is ignored"),
    "no-conditions": (Quirks(conditional=(501, "NotImplemented")), "refused: no conditional puts"),
    "no-multi-delete": (Quirks(bulk=(405, "MethodNotAllowed")), "accepted"),
    "conflict-once": (Quirks(conflicts=1), "accepted after a second try"),
}


def main() -> None:
    os.environ.update(KEYS)
    wrong = []
    for number, (name, (quirks, right)) in enumerate(SERVERS.items()):
        with serving(quirks=quirks) as server:
            os.environ["AWS_ENDPOINT_URL"] = server.address
            place = f"s3://bucket/prefix-{number}"  # another place, for stores are cached by it
            _, error = verdicts.attempt(lambda place=place: store_files.check(place))
        said = "accepted" if error is None else verdicts.worded(error)
        print(f"{name}: {said} | objects left: {len(server.objects)} | right: {right}")
        is_silent = error is not None and "does not answer" in str(error)
        is_refused = error is not None
        if is_silent or server.objects or is_refused != right.startswith("refused"):
            wrong.append(name)
    print("wrong:", wrong or "none")
    verdicts.end(
        not wrong,
        "a server's lack is named, and nothing is left in the bucket",
    )


if __name__ == "__main__":
    main()
