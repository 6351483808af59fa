#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=1024M
#SBATCH --gpus-per-node=1
#SBATCH --time=0-02:02:00
#SBATCH --signal=B:USR1@10
#SBATCH --requeue
#SBATCH --licenses="a b"
#SBATCH --job-name=pt-run-1-0123abcd
#SBATCH --comment="packtrain run-1"
#SBATCH --array=0-2
#SBATCH --output="/shared/my runs/run-1/slurm/pt-run-1-0123abcd.out"
#SBATCH --open-mode=append
#SBATCH --export=ALL

trap '' USR1  # until the agent receives it, the announced end of the job must not end it
# Run the attempt that the task's line in the tasks file names: job id, attempt id.
run='/shared/my runs/run-1'
mapfile -t -s "$SLURM_ARRAY_TASK_ID" -n 1 line < '/shared/my runs/run-1/slurm/pt-run-1-0123abcd.tasks' && read -r job attempt <<< "${line[0]}" || exit 71
folder=$run/jobs/$job/attempts/$attempt
plan=$folder/plan.json
[ -e "$plan" ] || plan=$run/jobs/$job/plan.json
mkdir -p "$folder" && exec >> "$folder/agent.out" 2>&1 || exit 56
unset SLURM_EXPORT_ENV  # so that `srun` in a step passes the step's variables on
exec /bin/sh "$run/launch.sh" "$plan" --attempt-id "$attempt" --attempt-folder "$folder" --secrets "$run/secrets" \
    --execution "$((${SLURM_RESTART_COUNT:-0} + 1))" --site "$SLURMD_NODENAME" --scratch "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}" \
    --deadline auto --announced 10 --kill-wait 30 --cache "/shared/$USER/cache" --cache-limit 1000000000
