/* Runs fuzz targets as tests. */
#ifndef WEFT_TESTS_FUZZ_CORPUS_H
#define WEFT_TESTS_FUZZ_CORPUS_H

#include <stddef.h>
#include <stdint.h>

/* Runs a target on the files of tests/fuzz/corpus/<name>/ and on fixed mutations of each. */
void fuzz_corpus_run(const char *name, int (*target)(const uint8_t *, size_t));

#endif
