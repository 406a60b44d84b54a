/* CLIP image preprocessing, for image encoders and for text encoders with a vision input. */
#ifndef WEFT_GENERATE_CONDITIONING_CLIP_PREPROCESS_H
#define WEFT_GENERATE_CONDITIONING_CLIP_PREPROCESS_H

#include "generate/conditioning/frame_inputs.h"
#include "video/clip_processor.h"

/* Folders of a pipeline with the preprocessing of its image encoder, the first existing one counts:
 * image_processor and feature_extractor. */
enum { WEFT_CLIP_PROCESSOR_FOLDERS = 2 };
extern const char *const weft_clip_processor_folders[WEFT_CLIP_PROCESSOR_FOLDERS];
/* Reads preprocessor_config.json in image_processor or feature_extractor of a model's folder if the
 * file exists. The defaults are CLIP's, for an encoder of images of `side` pixels. */
weft_status weft_clip_picture_processor(const char *folder, int64_t side, weft_clip_processor *p);
/* Reads preprocessor_config.json of an image encoder's folder, or the one in image_processor or
 * feature_extractor of the folder around it. */
weft_status weft_clip_encoder_processor(const char *encoder, int64_t side, weft_clip_processor *p);
/* Path of that file (heap, owned by the caller). Without such a file, it does not exist. */
weft_status weft_clip_encoder_processor_path(const char *encoder, char **path);
/* Fills to[crop, crop, 3] from the pixels u8 [height, width, 3] of the file `path`. */
weft_status weft_clip_picture_pixels(const weft_clip_processor *p, const char *path,
                                     const uint8_t *rgb, int64_t width, int64_t height, float *to);
/* Each fills to[crop, crop, 3]. Sources: an image file; a frame of a canvas in [-1,1], rounded as
 * if read from an image file unless p->unrounded; a file that is first resized to the canvas;
 * black. */
weft_status weft_clip_picture_file(const weft_clip_processor *p, const char *path, float *to);
weft_status weft_clip_picture_frame(const weft_clip_processor *p, const weft_canvas *size,
                                    const float *frame, float *to);
weft_status weft_clip_picture_resized(const weft_clip_processor *p, const weft_canvas *size,
                                      const char *path, float *to);
void weft_clip_picture_black(const weft_clip_processor *p, float *to);
/* Temporary bytes needed while a file is read. */
int64_t weft_clip_picture_bytes(const weft_clip_processor *p);

#endif
