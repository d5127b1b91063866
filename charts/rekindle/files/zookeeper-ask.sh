#!/bin/bash
# Asks this server a four-letter word: ask.sh WORD ANSWER. Exits with 0 when the answer is in it.
# A server that is asked while it starts may answer and never hang up: hence the limit, which is
# shorter than that of the probes.
exec 3<>/dev/tcp/127.0.0.1/2181 || exit 1
printf '%s' "$1" >&3
timeout 4 grep -q "$2" <&3
