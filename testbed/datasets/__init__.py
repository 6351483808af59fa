"""Data sets to try things with: real CIFAR-10 and MNIST in their published forms, and archives of ImageNet's shape.

`published` says what their authors published and where it lies; `obtain` brings it into a folder, from there or
repacked from another packing of the same images; `like_imagenet` makes a tar of class tars out of CIFAR-10.
Not here: how training programs read them (each recipe does that for itself). Start with obtain.py.
"""
