/* Kernels that are compiled while a program runs. Their "PTX" (tests/emu/nvrtc) has the source. */
#ifndef WEFT_EMU_COMPILE_H
#define WEFT_EMU_COMPILE_H

/* A line of the PTX; preprocessed C follows until its end. */
#define EMU_SOURCE_MARK "\n//emulated source\n"

/* The beginning of "machine code", which loads only on a GPU of its architecture. */
#define EMU_MACHINE_MARK "//emulated machine code\n"

/* Whether the image has the source. */
int emu_compile_has_source(const char *image);
/* Compiles the source of the image, if it has one, and registers its kernels. 0: done; else *log
 * has the reason. */
int emu_compile_image(const char *image, char *log, unsigned long log_bytes);

#endif
