/* The files of --in: a folder with its subfolders, or a bucket.
 *
 * Of a bucket, captions are copied when the files are listed, and each video before it is decoded
 * (input_copy.h). A video that cannot be copied stops the run and is not rejected: the next run
 * reads it. Only a video that was changed or removed since the list is rejected, until the next
 * run. */
#ifndef WEFT_CURATE_FOOTAGE_H
#define WEFT_CURATE_FOOTAGE_H

#include "storage/input_copy.h"

#include <xxhash.h>

typedef struct weft_footage weft_footage;
/* Lists the files, and other entries of a folder, as weft_list_tree does. `in` is borrowed. Files
 * below `location` (--out) and below `out`, its folder, are not listed. Objects whose names no file
 * can have are `others`. */
weft_status weft_footage_open(const char *in, const char *location, const char *out,
                              weft_footage **footage, weft_names *files, weft_names *others);
/* One remote video, s3://BUCKET/NAME or https://HOST/NAME; nothing is listed. */
weft_status weft_footage_open_video(const char *location, weft_footage **footage);
void weft_footage_close(weft_footage *footage); /* accepts NULL */
bool weft_footage_is_remote(const weft_footage *footage);
/* Bytes of a file, and a number that changes when the file is rewritten: in a folder the time of
 * change in nanoseconds. Both stay unchanged if the file cannot be read. `path`: in `in`. */
void weft_footage_facts(weft_footage *footage, const char *path, int64_t *bytes, int64_t *stamp);
weft_status weft_footage_hash(weft_footage *footage, const char *path, XXH128_hash_t *hash);
/* Sets *copy (heap) to the path of a caption file of a bucket on this machine. NULL: `path`. */
weft_status weft_footage_caption(const weft_footage *footage, const char *path, char **copy);

/* A video that is being decoded. */
typedef struct weft_footage_video {
    const char *path;      /* path of a file of this machine; borrowed */
    const char *source;    /* path in `in`; borrowed */
    weft_input_copy *copy; /* NULL: the file of the folder */
} weft_footage_video;

/* `source`: path in `in`, borrowed until close. Any process: children use connections of their own.
 * `beat` is called with `user` each second while the copy is made, from another thread. */
weft_status weft_footage_video_open(weft_footage *footage, const char *source,
                                    void (*beat)(void *user), void *user,
                                    weft_footage_video *video);
/* Returns `status`. Its error names the source in place of the copy. */
weft_status weft_footage_video_close(weft_footage_video *video, weft_status_code status);

#endif
