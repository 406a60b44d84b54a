#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_READ_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_READ_H

#include "comm/comm.h"
#include "generate/generator/generator.h"

/* WEFT_E_ARG: the model cannot generate this frame count, height or width; the error names the
 * nearest. */
weft_status weft_generator_check_size(const weft_generator *generator, const int64_t size[3]);

/* Reads the model of `folder` and opens the trajectory and the inputs. Fills in the unset values of
 * p->options. Builds no graph. */
weft_status weft_generator_read(weft_generator *p, const char *folder);
/* If *bytes is 0, sets it to the memory limit of a rank. Ranks of one machine share its free memory
 * equally. All ranks get the smallest share, so that they use the same tiles. Collective. `comm`
 * may be NULL. */
weft_status weft_generator_share(weft_comm *comm, const weft_generator_options *options,
                                 int64_t *bytes);

#endif
