// Package livetable keeps tables of resources sorted, filtered and up to date, and sends
// callers the rows that they see.
//
// A live table has one row for each object that a [read.Query] selects, with kubectl's
// columns. It follows a watch by the same read path as every other read. Callers whose
// queries select the same share one table, and those that also sort and filter alike
// share one order of its rows. Each caller is authorized before [Tables.Open], on the
// query that is passed to it.
//
// A [Window] is a part of a table: some columns of some rows of an order.
// [Window.Next] returns one frame after another: the first is complete, and each of the
// others has what is different since the one before. A caller that reads slowly gets
// fewer frames, not more to catch up with.
package livetable
