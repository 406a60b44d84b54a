/* Models whose matrices stay as a GGUF file packs them. */
#ifndef WEFT_GENERATE_PACKED_H
#define WEFT_GENERATE_PACKED_H

#include "model/adapter.h"
#include "model/dialect.h"
#include "pass/pass.h"

/* Whether the weights at `path` have matrices in blocks of small integers. */
weft_status weft_packed_has(const char *path, bool *has);
/* `g`, a model of the family whose names begin with `prefix`, with those that the file at `path`
 * packs as they lie in it (pass/pass.h, pack), but for those that adapters change. */
weft_status weft_packed_graph(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, const weft_adapter_use *use, int uses,
                              weft_graph **out);

#endif
