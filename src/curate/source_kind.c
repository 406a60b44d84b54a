#include "curate/source_kind.h"

#include "base/fs.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

weft_source_kind weft_source_kind_of(const char *name)
{
    static const char *const other[] = {"md",   "csv", "tsv",   "srt",  "ass", "jpg", "jpeg", "png",
                                        "webp", "bmp", "tif",   "tiff", "mp3", "wav", "flac", "ogg",
                                        "m4a",  "aac", "jsonl", "yaml", "yml", "xml", "html", "pdf",
                                        "zip",  "tar", "gz",    "py",   "sh",  "log", NULL};
    const char *extension = weft_path_extension(name);
    if (strncmp(weft_path_base(name), ".weft-", 6) == 0) /* the index of training on videos */
        return WEFT_SOURCE_KIND_OTHER;
    if (strcasecmp(weft_path_base(name), "captions.csv") == 0)
        return WEFT_SOURCE_KIND_TABLE;
    if (strcasecmp(extension, "txt") == 0 || strcasecmp(extension, "json") == 0 ||
        strcasecmp(extension, "vtt") == 0)
        return WEFT_SOURCE_KIND_SIDECAR;
    for (int i = 0; other[i]; i++)
        if (strcasecmp(extension, other[i]) == 0)
            return WEFT_SOURCE_KIND_OTHER;
    return WEFT_SOURCE_KIND_VIDEO;
}

const char *weft_source_kind_why(const char *name)
{
    static const char *const captions[] = {"csv", "tsv", "srt", "ass", "jsonl", NULL};
    for (int i = 0; captions[i]; i++)
        if (strcasecmp(weft_path_extension(name), captions[i]) == 0)
            return "not a video, by its name. Captions are read only from VIDEO.txt, VIDEO.vtt or "
                   "VIDEO.json next to each video, and from captions.csv";
    return "not a video, by its name";
}
