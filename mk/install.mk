# make install [PREFIX=/usr/local] [DESTDIR=]: program, libraries, headers, weft.pc, man pages,
# completions, weftConfig.cmake. make uninstall takes the same variables.
PREFIX ?= /usr/local
# quoted: folders may have blanks in their names
ROOT = "$(DESTDIR)$(PREFIX)"

.PHONY: install uninstall docs
install:
	@DESTDIR="$(DESTDIR)" flock $(O) cmake --install $(O) --prefix "$(PREFIX)" >$(O)/install.log
	@echo installed in $(ROOT)
uninstall:
	rm -f $(ROOT)/bin/weft $(ROOT)/lib/libweft.a $(ROOT)/lib/libweft.so* \
		$(ROOT)/lib/pkgconfig/weft.pc $(ROOT)/lib/pkgconfig/weft-static.pc \
		$(ROOT)/share/man/man1/weft.1 $(ROOT)/share/man/man1/weft-*.1 \
		$(ROOT)/share/bash-completion/completions/weft \
		$(ROOT)/share/zsh/site-functions/_weft $(ROOT)/share/fish/vendor_completions.d/weft.fish
	rm -rf $(ROOT)/include/weft $(ROOT)/lib/cmake/weft

# docs/reference/verbs, messages.md and examples/schema come from the tables of src.
SCHEMAS := train curate shard serve plan-cascades plan-generate plan-layout plan-memory plan-pipeline
docs:
	@mkdir -p docs/reference/verbs
	@for verb in $$($(O)/weft help --verbs); do \
		$(O)/weft help --markdown $$verb > docs/reference/verbs/$$verb.md || exit 1; \
		echo "  DOC  docs/reference/verbs/$$verb.md"; done
	@$(O)/weft explain --markdown > docs/reference/messages.md; \
		echo "  DOC  docs/reference/messages.md"
	@mkdir -p examples/schema
	@for name in $(SCHEMAS); do $(O)/weft schema $$name >examples/schema/$$name.json || exit 1; \
		echo "  DOC  examples/schema/$$name.json"; done
