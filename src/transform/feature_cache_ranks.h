#ifndef WEFT_TRANSFORM_FEATURE_CACHE_RANKS_H
#define WEFT_TRANSFORM_FEATURE_CACHE_RANKS_H

#include "transform/numeric/feature_cache_graphs.h"

/* Replaces the graphs by those of one rank (passes of WEFT_PASS_WHOLE). A state has the layout of
 * the value that is written to it, in all graphs. */
weft_status weft_feature_cache_programs_shard(weft_feature_cache_programs *reuse,
                                              const struct weft_pass_setup *setup);

#endif
