# make dist-tar, dist-wheel, dist-deb: packages of weft in $(O)/dist (docs/how-to/install.md).
#   dist-tar     a relocatable tree with all libraries     needs patchelf
#   dist-wheel   the same tree for `uv tool install`       needs patchelf
#   dist-deb     weft, libweft0 and libweft-dev            needs debhelper and lintian
.PHONY: dist-tar dist-wheel dist-deb
dist-tar:
	@packaging/tree.py $(O) $(O)/dist
dist-wheel:
	@packaging/wheel.py $(O) $(O)/dist
dist-deb:
	@packaging/deb.sh $(O)/dist
