#ifndef WEFT_CURATE_DUPLICATES_PARTIAL_MATCH_H
#define WEFT_CURATE_DUPLICATES_PARTIAL_MATCH_H

#include "curate/duplicates/keypoints.h"

/* Finds the maps from a to b that fit the keypoints, best first. Returns their number. */
int weft_parts_maps(const weft_parts *a, const weft_parts *b, weft_parts_map maps[WEFT_PARTS_MAPS]);
/* Compares the thumbnails under one of these maps. */
weft_parts_match weft_parts_compare(const weft_parts *a, const weft_parts *b,
                                    const weft_parts_map *map);

#endif
