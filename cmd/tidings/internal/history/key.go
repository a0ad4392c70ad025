package history

import (
	"encoding/binary"
	"strings"
)

// The keys of the database. Numbers are big-endian, so that keys sort by number.
//
//	f                                         the format of the folder
//	t                                         the resources that are thinned
//	s <series>                                a series
//	p <series>                                how far a series has been seen
//	g <series> <seq>                          a gap of a series
//	w <series> <window>                       a window
//	n <series> <object>                       what the newest version of an object lacks
//	d <series> <window> l <seq>               a batch of the log
//	d <series> <window> o <object> 0 1 <seq>  a version of an object
const (
	kindFormat   = 'f'
	kindThinned  = 't'
	kindSeries   = 's'
	kindProgress = 'p'
	kindGap      = 'g'
	kindWindow   = 'w'
	kindNewest   = 'n'
	kindData     = 'd'

	dataLog    = 'l'
	dataObject = 'o'
)

func formatKey() []byte { return []byte{kindFormat} }

func thinnedKey() []byte { return []byte{kindThinned} }

func seriesKey(series uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindSeries}, series)
}

func progressKey(series uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindProgress}, series)
}

func gapKey(series uint32, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{kindGap}, series), seq)
}

func windowKey(series uint32, window uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{kindWindow}, series), window)
}

func newestKey(series uint32, object string) []byte {
	return appendObject(binary.BigEndian.AppendUint32([]byte{kindNewest}, series), object)
}

// dataKey is the common beginning of the keys of a window.
func dataKey(series uint32, window uint64) []byte {
	k := make([]byte, 0, 128)
	k = append(k, kindData)
	k = binary.BigEndian.AppendUint32(k, series)
	return binary.BigEndian.AppendUint64(k, window)
}

const dataKeyLen = 1 + 4 + 8

func logKey(series uint32, window, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dataKey(series, window), dataLog), seq)
}

func objectsKey(series uint32, window uint64) []byte {
	return append(dataKey(series, window), dataObject)
}

// objectKey is the beginning of the keys of an object's versions. Zero bytes in the
// object's name are escaped, so that no object's keys lie between those of another.
func objectKey(series uint32, window uint64, object string) []byte {
	return append(appendObject(objectsKey(series, window), object), 0, 1)
}

func appendObject(k []byte, object string) []byte {
	if strings.IndexByte(object, 0) >= 0 {
		object = strings.ReplaceAll(object, "\x00", "\x00\xff")
	}
	return append(k, object...)
}

func versionKey(series uint32, window uint64, object string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(objectKey(series, window, object), seq)
}

// parseVersionKey returns the object and the sequence number of a version's key.
func parseVersionKey(k []byte) (object []byte, seq uint64, ok bool) {
	const head = dataKeyLen + 1
	if len(k) < head+2+8 || k[dataKeyLen] != dataObject {
		return nil, 0, false
	}
	object = k[head : len(k)-8-2]
	return object, binary.BigEndian.Uint64(k[len(k)-8:]), true
}

func unescapeObject(object []byte) string {
	s := string(object)
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00\xff", "\x00")
	}
	return s
}

// after returns the first key that does not begin with prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// seqOf returns the sequence number at the end of a key.
func seqOf(k []byte) uint64 { return binary.BigEndian.Uint64(k[len(k)-8:]) }
