"""Datasets for demos and tests: real CIFAR-10 and MNIST in their published formats, and synthetic ImageNet archives.

`catalog` lists the published files and their URLs. `download` gets them, or repacks the same images from another
archive. `synthetic_imagenet` builds a tar of class tars from CIFAR-10. Each recipe reads the data in its own way.
Start reading at download.py; `python -m testbed.datasets` is the command.
"""
