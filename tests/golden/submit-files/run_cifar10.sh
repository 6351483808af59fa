#!/bin/bash
# unpack, train, clean up

mkdir -p data
tar -xzf cifar-10-python.tar.gz -C data
python3 cifar10.py --epochs "$1" $2

rm -rf data cifar-10-python.tar.gz
