#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=4000
#SBATCH --time=0-01:00:00
#SBATCH --signal=B:TERM@90
##SBATCH --exclusive

set -e
export MASTER_ADDR=$(hostname)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
torchrun --nnodes=1 --nproc_per_node=2 --master_addr=127.0.0.1 --master_port=$MASTER_PORT ddp.py
