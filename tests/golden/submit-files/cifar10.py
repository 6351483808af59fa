# stands for a training program
