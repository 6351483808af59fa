# The minimum of what packtrain's agent does, for an image without Python. The lines above are generated for one job.
attempt_folder=$PWD
attempt_id=manual
while [ $# -gt 0 ]; do
    if [ "$1" = --attempt-id ]; then attempt_id=$2; fi
    shift
done

now() { date +%s; }
started_at=$(now)
emitter="agent-shell-$started_at-$$"
seq=0
event() { # kind, data as JSON
    seq=$((seq + 1))
    printf "$event_format\n" "$PACKTRAIN_RUN" "$PACKTRAIN_JOB" "$emitter" "$seq" "$1" "$(now)" "$(now)" "$2" \
        >>"$attempt_folder/journal.jsonl"
}
stage_started() { event stage.started "{\"stage\": \"$1\"}"; }
stage_ended() { event stage.ended "{\"stage\": \"$1\", \"seconds\": $(($(now) - $2)), \"failure\": ${3:-null}}"; }
agent_ended() { # outcome, exit code
    event agent.ended "{\"outcome\": \"$1\", \"exit_code\": $2, \"failure\": $failure, \"outputs\": [], \"freed_bytes\": 0, \"seconds\": $(($(now) - started_at))}"
}

sandbox=$attempt_folder/sandbox
export STORAGE_PATH="$sandbox" PACKTRAIN_OUTPUT="$sandbox/output" DEEPSQUARE_OUTPUT="$sandbox/output"
export PACKTRAIN_INPUT="$sandbox/input" DEEPSQUARE_INPUT="$sandbox/input"
export PACKTRAIN_INPUTS="$sandbox/inputs" PACKTRAIN_TMP="$sandbox/tmp"
mkdir -p "$sandbox/output" "$sandbox/input" "$sandbox/inputs" "$sandbox/tmp" "$work_dir" "$attempt_folder/logs"
event agent.started "{\"attempt\": \"$attempt_id\", \"host\": \"$(uname -n)\", \"pid\": $$, \"site\": \"\", \"version\": \"$version\", \"python\": \"\"}"

failure=null
copy_input() { # from a file or folder that HTCondor transferred, to where the job expects it
    mkdir -p "${2%/*}"
    if [ -d "$1" ]; then mkdir -p "$2" && cp -R "$1/." "$2/"; else cp "$1" "$2"; fi || failure=$transfer_failed
}
stage_started_at=$(now)
stage_started fetch
copy_inputs
stage_ended fetch "$stage_started_at" "$failure"
if [ "$failure" != null ]; then
    agent_ended failed "$transfer_failed_code"
    rm -rf "$sandbox"
    exit "$transfer_failed_code"
fi

ls -A "$work_dir" >"$sandbox/tmp/names_before"
touch "$sandbox/tmp/steps_started"
stage_started_at=$(now)
stage_started steps
event step.started "{\"step\": \"$step\", \"command\": \"\"}"
(cd "$work_dir" && exec "$shell" -c "$command") >>"$attempt_folder/logs/$step.out" 2>>"$attempt_folder/logs/$step.err"
code=$?
event step.ended "{\"step\": \"$step\", \"exit_code\": $code, \"seconds\": $(($(now) - stage_started_at))}"

collect_output() { # from the working folder, to this name in the output folder
    case $2 in */*) mkdir -p "$sandbox/output/${2%/*}" ;; esac
    if [ -d "$work_dir/$1" ]; then
        mkdir -p "$sandbox/output/$2" && cp -R "$work_dir/$1/." "$sandbox/output/$2/"
    elif [ -e "$work_dir/$1" ]; then
        cp "$work_dir/$1" "$sandbox/output/$2"
    fi
}
collect_new_files() { # files at the top of the working folder that are new or have changed
    for name in $(cd "$work_dir" && ls -A | tr ' ' '\001'); do
        name=$(printf '%s' "$name" | tr '\001' ' ')
        if [ -f "$work_dir/$name" ]; then
            if ! grep -Fqx -e "$name" "$sandbox/tmp/names_before" || [ "$work_dir/$name" -nt "$sandbox/tmp/steps_started" ]; then
                cp "$work_dir/$name" "$sandbox/output/"
            fi
        fi
    done
}
collect_outputs
copy_stdio

if [ $code -ne 0 ]; then
    failure=$(printf "$step_failed" "$code")
    exit_code=$step_failed_code
fi
stage_ended steps "$stage_started_at" "$failure"

require_output() { # paths that must exist, then the minimum size: if it is not 0, they must not be empty
    for min_bytes in "$@"; do :; done
    while [ $# -gt 1 ]; do
        if [ ! -e "$1" ]; then
            failure=$output_missing exit_code=$output_missing_code
        elif [ "$min_bytes" -ne 0 ] && [ ! -s "$1" ]; then
            failure=$output_empty exit_code=$output_empty_code
        fi
        shift
    done
}
if [ "$failure" = null ]; then
    stage_started_at=$(now)
    stage_started check
    exit_code=0
    check_outputs
    stage_ended check "$stage_started_at" "$failure"
fi

output_dir=$attempt_folder/output
outcome=succeeded
if [ "$failure" != null ]; then
    output_dir=$attempt_folder/output/.packtrain/$emitter
    outcome=failed
fi
mkdir -p "$output_dir"
cp -R "$sandbox/output/." "$output_dir/"
rm -rf "$sandbox"
agent_ended "$outcome" "$exit_code"
exit "$exit_code"
