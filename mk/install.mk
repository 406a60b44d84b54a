# make install [PREFIX=/usr/local] [DESTDIR=]: program, library, headers, weft.pc, man page, completion.
# make uninstall takes the same variables.
PUBLIC_HEADERS = $(sort $(filter %.h,$(shell $(CC) -std=c17 -D_GNU_SOURCE -Isrc -Iinclude/weft $(INC) -MM include/weft/weft.h \
                   | tr -d '\\')))
# quoted: folders may have blanks in their names
ROOT = "$(DESTDIR)$(PREFIX)"

# Installed headers find one another from where they lie: a program may have a base/status.h of its own.
RELATIVE := s,^\(\# *include "\)\([a-z]*/\),\1../\2,

# written anew each time: PREFIX may be another
.PHONY: always
$(O)/weft.pc: always
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(subst $(blank),\$(blank),$(PREFIX))' 'includedir=$${prefix}/include' 'libdir=$${prefix}/lib' '' \
		'Name: weft' 'Description: training and generation of video models' 'Version: $(VERSION)' \
		'Requires: jansson' \
		'Cflags: -I$${includedir}/weft' 'Libs: -L$${libdir} -lweft -fopenmp $(LIBS)' > $@

.PHONY: install uninstall
install: $(O)/weft $(O)/libweft.a $(O)/weft.pc $(O)/weft.1 $(O)/weft.bash
	@install -d $(ROOT)/bin $(ROOT)/lib/pkgconfig $(ROOT)/share/man/man1 \
		$(ROOT)/share/bash-completion/completions
	@install -m 755 $(O)/weft $(ROOT)/bin/weft
	@install -m 644 $(O)/libweft.a $(ROOT)/lib/libweft.a
	@install -m 644 $(O)/weft.pc $(ROOT)/lib/pkgconfig/weft.pc
	@install -m 644 $(O)/weft.1 $(ROOT)/share/man/man1/weft.1
	@install -m 644 $(O)/weft.bash $(ROOT)/share/bash-completion/completions/weft
	@for h in $(filter src/%,$(PUBLIC_HEADERS)) $(wildcard src/graph/*.def); do \
		install -D -m 644 $$h $(ROOT)/include/weft/$${h#src/} && \
		sed -i '$(RELATIVE)' $(ROOT)/include/weft/$${h#src/} || exit 1; done
	@install -D -m 644 include/weft/weft.h $(ROOT)/include/weft/weft.h
	@echo installed in $(ROOT)
uninstall:
	rm -f $(ROOT)/bin/weft $(ROOT)/lib/libweft.a $(ROOT)/lib/pkgconfig/weft.pc \
		$(ROOT)/share/man/man1/weft.1 $(ROOT)/share/bash-completion/completions/weft
	rm -rf $(ROOT)/include/weft

# docs/verbs, the man page and bash completion come from the tables in src/cli.
.PHONY: docs
docs: $(O)/weft
	@mkdir -p docs/verbs
	@for verb in $$($(O)/weft help --verbs); do \
		$(O)/weft help --markdown $$verb > docs/verbs/$$verb.md || exit 1; \
		echo "  DOC  docs/verbs/$$verb.md"; done

$(O)/weft.1: $(O)/weft
	@$< help --man > $@.tmp && mv $@.tmp $@
$(O)/weft.bash: $(O)/weft
	@$< help --bash > $@.tmp && mv $@.tmp $@
