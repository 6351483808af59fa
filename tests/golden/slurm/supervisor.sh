#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=500M
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --account=lab
#SBATCH --partition=cpu
#SBATCH --qos=long
#SBATCH --requeue
#SBATCH --nice=100
#SBATCH --job-name=packtrain-cifar-x7kq
#SBATCH --comment="packtrain cifar-x7kq"
#SBATCH --output="/home/ada/my runs/cifar-x7kq/supervisor.log"
#SBATCH --open-mode=append
#SBATCH --export=ALL

job=$SLURM_JOB_ID restarts=${SLURM_RESTART_COUNT:-0} requeue= cancelled=
unset TMPDIR  # that of this job; the run's jobs have their own
for name in "${!SLURM_@}" "${!SBATCH_@}"; do [ "$name" = SLURM_CONF ] || unset "$name"; done
export PACKTRAIN_STORE='/home/ada/it'"'"'s here/store.db'

trap 'requeue=1; kill -TERM "$supervisor"' USR1
trap 'cancelled=1; kill -TERM "$supervisor"' TERM
/opt/venv/bin/python -m packtrain supervise cifar-x7kq --in-job &
supervisor=$!
wait "$supervisor"; code=$?
while kill -0 "$supervisor" 2>/dev/null; do wait "$supervisor"; code=$?; done  # a signal interrupts `wait`

if [ "$code" -eq 1 ] || [ "$code" -eq 137 ]; then  # an internal error, or killed
    [ "$SECONDS" -lt 60 ] && [ "$restarts" -ge 10 ] || requeue=1
fi
if [ -n "$requeue" ] && [ -z "$cancelled" ]; then
    scontrol requeue "$job"
fi
exit "$code"
