# What packtrain's agent does, at the least, in an image that has no Python for it. The lines above are made for one job.
here=$PWD
decision=manual
while [ $# -gt 0 ]; do
    if [ "$1" = --attempt-id ]; then decision=$2; fi
    shift
done

now() { date +%s; }
begun=$(now)
emitter="agent-bare-$begun-$$"
seq=0
event() {
    seq=$((seq + 1))
    printf '{"v": 2, "run": "%s", "job": "%s", "emitter": "%s", "seq": %d, "kind": "%s", "wall": %s, "mono": %s, "data": %s}\n' \
        "$PACKTRAIN_RUN" "$PACKTRAIN_JOB" "$emitter" "$seq" "$1" "$(now)" "$(now)" "$2" >>"$here/journal.jsonl"
}
started() { event stage.started "{\"stage\": \"$1\"}"; }
ended() { event stage.ended "{\"stage\": \"$1\", \"seconds\": $(($(now) - $2)), \"failure\": ${3:-null}}"; }

box=$here/sandbox
export STORAGE_PATH="$box" PACKTRAIN_OUTPUT="$box/output" DEEPSQUARE_OUTPUT="$box/output"
export PACKTRAIN_INPUT="$box/input" DEEPSQUARE_INPUT="$box/input" PACKTRAIN_INPUTS="$box/inputs" PACKTRAIN_TMP="$box/tmp"
mkdir -p "$box/output" "$box/input" "$box/inputs" "$box/tmp" "$work" "$here/logs"
event agent.started "{\"decision\": \"$decision\", \"host\": \"$(uname -n)\", \"pid\": $$, \"site\": \"\", \"version\": \"$version\", \"python\": \"\"}"

failure=null
take() { # a file or a folder that HTCondor brought, to where the job expects it
    mkdir -p "${2%/*}"
    if [ -d "$1" ]; then mkdir -p "$2" && cp -R "$1/." "$2/"; else cp "$1" "$2"; fi || failure=$transfer_failed
}
at=$(now)
started fetch
take_inputs
ended fetch "$at" "$failure"
if [ "$failure" != null ]; then
    event agent.ended "{\"outcome\": \"failed\", \"exit_code\": $delivery_failed_code, \"failure\": $failure, \"outputs\": [], \"freed_bytes\": 0, \"seconds\": $(($(now) - begun))}"
    rm -rf "$box"
    exit "$delivery_failed_code"
fi

ls -A "$work" >"$box/tmp/before"
touch "$box/tmp/mark"
at=$(now)
started steps
event step.started "{\"step\": \"$step\", \"command\": \"\"}"
(cd "$work" && exec "$shell" -c "$command") >>"$here/logs/$step.out" 2>>"$here/logs/$step.err"
code=$?
event step.ended "{\"step\": \"$step\", \"exit_code\": $code, \"seconds\": $(($(now) - at))}"

bring() { # to the output folder under another name
    case $2 in */*) mkdir -p "$box/output/${2%/*}" ;; esac
    if [ -d "$work/$1" ]; then
        mkdir -p "$box/output/$2" && cp -R "$work/$1/." "$box/output/$2/"
    elif [ -e "$work/$1" ]; then
        cp "$work/$1" "$box/output/$2"
    fi
}
bring_new() { # files at the top of the working folder that were not there before, or have changed
    for name in $(cd "$work" && ls -A | tr ' ' '\001'); do
        name=$(printf '%s' "$name" | tr '\001' ' ')
        if [ -f "$work/$name" ]; then
            if ! grep -Fqx -e "$name" "$box/tmp/before" || [ "$work/$name" -nt "$box/tmp/mark" ]; then
                cp "$work/$name" "$box/output/"
            fi
        fi
    done
}
collect
keep_words

if [ $code -ne 0 ]; then
    failure=$(printf "$step_failed" "$code")
    result=$step_failed_code
fi
ended steps "$at" "$failure"

must() { # all but the last word are files that have to be there, with something in them if the last is not 0
    for least in "$@"; do :; done
    while [ $# -gt 1 ]; do
        if [ ! -e "$1" ]; then
            failure=$output_missing result=$output_missing_code
        elif [ "$least" -ne 0 ] && [ ! -s "$1" ]; then
            failure=$output_empty result=$output_empty_code
        fi
        shift
    done
}
if [ "$failure" = null ]; then
    at=$(now)
    started check
    result=0
    check
    ended check "$at" "$failure"
fi

into=$here/output
outcome=succeeded
if [ "$failure" != null ]; then
    into=$here/output/.packtrain/$emitter
    outcome=failed
fi
mkdir -p "$into"
cp -R "$box/output/." "$into/"
rm -rf "$box"
event agent.ended "{\"outcome\": \"$outcome\", \"exit_code\": $result, \"failure\": $failure, \"outputs\": [], \"freed_bytes\": 0, \"seconds\": $(($(now) - begun))}"
exit "$result"
