# A small program for the tests that need mpirun (tests/runtime/*.sh).
test-bin: $(O)/test-tools/ranks
$(O)/test-tools/ranks: $(O)/tests/runtime/tool/ranks.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
# The runtime's tests train the same small model as those of the passes.
$(O)/test/runtime: $(O)/tests/pass/training_graph.o
