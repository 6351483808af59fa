print("preparing")
