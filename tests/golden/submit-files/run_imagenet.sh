#!/bin/bash
set -e
mkdir data
mv ILSVRC2012_img_train.tar data/
python3 main3.py "$@"
rm -rf data
