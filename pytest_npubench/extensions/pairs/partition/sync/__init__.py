"""What waiting costs a pair of units: round trips by mechanism, fast against slow at small operators, and whether the
waiting lies on the critical path (HeteroInfer, sections 4.3, 5.4). Each measurement takes a pair and returns samples.
"""
