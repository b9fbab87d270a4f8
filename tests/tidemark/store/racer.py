"""A process of its own that writes when told to: `absent KEY` or `unchanged KEY ETAG`, one line each."""

import pickle
import sys

from tidemark.errors import ObjectChanged
from tidemark.store import ObjectStore


def main() -> None:
    store: ObjectStore = pickle.loads(bytes.fromhex(sys.argv[1]))
    body = sys.argv[2].encode()
    for line in sys.stdin:
        how, key, *etag = line.split()
        try:
            if how == "absent":
                store.put_if_absent(key, body + key.encode())
            else:
                # The body differs each time, or the etag on S3 would come round again.
                store.put_if_unchanged(key, body + etag[0].encode(), etag[0])
            answer = "won"
        except ObjectChanged:
            answer = "lost"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
