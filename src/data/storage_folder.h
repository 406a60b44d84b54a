#ifndef WEFT_DATA_STORAGE_FOLDER_H
#define WEFT_DATA_STORAGE_FOLDER_H

#include "data/storage.h"

/* The folder, in storage_folder.c. */
extern const weft_storage_kind weft_storage_folder;

#endif
