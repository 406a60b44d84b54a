# make install [PREFIX=/usr/local] [DESTDIR=]: program, library, headers, weft.pc, man page, completion.
# make uninstall takes the same variables.
PUBLIC_HEADERS = $(sort $(filter %.h,$(shell $(CC) -std=c17 -D_GNU_SOURCE -Isrc -Iinclude/weft $(INC) -MM include/weft/weft.h \
                   | tr -d '\\')))
INSTALL_ROOT = $(DESTDIR)$(PREFIX)

# written anew each time: PREFIX may be another
.PHONY: always
$(O)/weft.pc: always
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' 'libdir=$${prefix}/lib' '' \
		'Name: weft' 'Description: training and generation of video models' 'Version: $(VERSION)' \
		'Requires: jansson' \
		'Cflags: -I$${includedir}/weft' 'Libs: -L$${libdir} -lweft -fopenmp $(LIBS)' > $@

.PHONY: install uninstall
install: $(O)/weft $(O)/libweft.a $(O)/weft.pc $(O)/weft.1 $(O)/weft.bash
	@install -d $(INSTALL_ROOT)/bin $(INSTALL_ROOT)/lib/pkgconfig $(INSTALL_ROOT)/share/man/man1 \
		$(INSTALL_ROOT)/share/bash-completion/completions
	@install -m 755 $(O)/weft $(INSTALL_ROOT)/bin/weft
	@install -m 644 $(O)/libweft.a $(INSTALL_ROOT)/lib/libweft.a
	@install -m 644 $(O)/weft.pc $(INSTALL_ROOT)/lib/pkgconfig/weft.pc
	@install -m 644 $(O)/weft.1 $(INSTALL_ROOT)/share/man/man1/weft.1
	@install -m 644 $(O)/weft.bash $(INSTALL_ROOT)/share/bash-completion/completions/weft
	@for h in $(filter src/%,$(PUBLIC_HEADERS)); do \
		install -D -m 644 $$h $(INSTALL_ROOT)/include/weft/$${h#src/} || exit 1; done
	@for h in $(filter src/%.def,$(wildcard src/graph/*.def)); do \
		install -D -m 644 $$h $(INSTALL_ROOT)/include/weft/$${h#src/} || exit 1; done
	@install -D -m 644 include/weft/weft.h $(INSTALL_ROOT)/include/weft/weft.h
	@echo "installed in $(INSTALL_ROOT)"
uninstall:
	rm -f $(INSTALL_ROOT)/bin/weft $(INSTALL_ROOT)/lib/libweft.a $(INSTALL_ROOT)/lib/pkgconfig/weft.pc \
		$(INSTALL_ROOT)/share/man/man1/weft.1 $(INSTALL_ROOT)/share/bash-completion/completions/weft
	rm -rf $(INSTALL_ROOT)/include/weft
