# make bench-kernel B=pattern: bench/kernels, with PyTorch beside it if WEFT_PEER_PYTHON names a python that has it.
.PHONY: bench-kernel
$(O)/bench/kernels: $(O)/bench/kernels.o $(O)/libweft.a
	@mkdir -p $(@D)
	$(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
bench-kernel: $(O)/bench/kernels
	$< $(B)
bench: bench-kernel
