"""The experiments of the partition suite, one file each (HeteroInfer, sections 3 to 5)."""
