"""The bucket suite on a vendor's compiler: every case rests on the binaries that it needs, and nothing runs."""
