#!/bin/sh
# Java, Python and tini where the base does not have them, and Spark's user.
set -eu
if ! { command -v java && command -v tini && command -v bash && python3 -c 'import ensurepip, venv'; } \
    > /dev/null 2>&1; then
  if ! command -v apt-get > /dev/null; then
    echo 'BASE_IMAGE: has no Java, Python with venv, bash or tini, and no apt-get to install them;' \
      'take a base of the Debian family, or one that has them' >&2
    exit 2
  fi
  apt-get update
  apt-get install --yes --no-install-recommends \
    bash ca-certificates openjdk-17-jre-headless python3 python3-venv tini
  rm -rf /var/lib/apt/lists/* /var/cache/apt/*
fi
# As in Spark's own images. Its home is where it may write.
if ! grep -q '^[^:]*:[^:]*:185:' /etc/passwd; then
  echo 'spark:x:185:' >> /etc/group
  echo 'spark:x:185:185:Spark:/tmp:/usr/sbin/nologin' >> /etc/passwd
fi
# As there too: a user of OpenShift's ranges is of group 0, and has no name (entrypoint.sh).
chgrp 0 /etc/passwd
chmod g+w /etc/passwd
