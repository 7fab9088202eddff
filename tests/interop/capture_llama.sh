#!/bin/sh
# Send every stored request again and store the answers as curl's raw dumps:
#   capture_llama.sh URL [FOLDER]   (URL as llama_server.py or serve_server.py prints it, ending in
#                                    /v1; FOLDER of captures/, default llama)
# The name's first word chooses the route. A `.json` file is a request, a `.body` one is none (it is
# sent all the same). The pair keep-alive-1, keep-alive-2 goes by one call of curl.
set -eu
cd "$(dirname "$0")/captures/${2:-llama}"

raw() { curl -siN --raw --max-time 60 -H 'Content-Type: application/json' "$@"; }

route() {
    case "$1" in chat-*) echo "$2/chat/completions" ;; *) echo "$2/completions" ;; esac
}

for file in chat-*.json chat-*.body completions-*.json completions-*.body; do
    [ -e "$file" ] || continue # a pattern that nothing matched
    name=${file%.*}
    raw --data-binary "@$file" -o "$name.http" "$(route "$name" "$1")"
done
[ -e keep-alive-1.json ] || exit 0
curl -siN --raw -H 'Content-Type: application/json' \
        --data-binary @keep-alive-1.json -o keep-alive-1.http "$1/chat/completions" \
    --next -siN --raw -H 'Content-Type: application/json' \
        --data-binary @keep-alive-2.json -o keep-alive-2.http "$1/chat/completions"
